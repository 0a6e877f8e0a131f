//! Server names: the frontends of TLS that share a port tell their traffic apart by the name that the client asks for (server name
//! indication, RFC 6066, section 3).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A set of server names: one name, or all names below a domain, however many labels they add (`*.example.com`, which is not
/// `example.com` itself). Sorts by domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerNamePattern {
    domain: Arc<str>,
    wildcard: bool,
}

impl ServerNamePattern {
    /// The pattern of a host name, `*.` before it for a wildcard. Names are compared in lower case. The text is not checked: a pattern
    /// that is no host name matches nothing that a client can ask for.
    pub fn new(text: &str) -> Self {
        let (domain, wildcard) = text.strip_prefix("*.").map_or((text, false), |domain| (domain, true));
        Self { domain: domain.to_ascii_lowercase().into(), wildcard }
    }

    /// Whether every name of `other` is one of this pattern, too.
    pub fn covers(&self, other: &Self) -> bool {
        if self.wildcard {
            let below = other.domain.strip_suffix(&*self.domain).is_some_and(|rest| rest.ends_with('.'));
            below || (other.wildcard && other.domain == self.domain)
        } else {
            self == other
        }
    }

    /// The names that both patterns have: those of the narrower one, or none.
    pub fn intersection<'a>(&'a self, other: &'a Self) -> Option<&'a Self> {
        if self.covers(other) { Some(other) } else { other.covers(self).then_some(self) }
    }
}

impl fmt::Display for ServerNamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.wildcard { "*." } else { "" }, self.domain)
    }
}

/// Values by pattern. The narrowest pattern has a name: the name itself, then the wildcard with the most labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternMap<T> {
    exact: HashMap<Arc<str>, T>,
    /// By the domain.
    wildcard: HashMap<Arc<str>, T>,
    /// Labels of the longest domain of a wildcard: longer suffixes of a name need no look-up.
    deepest: usize,
}

impl<T> Default for PatternMap<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), wildcard: HashMap::new(), deepest: 0 }
    }
}

impl<T> PatternMap<T> {
    /// Adds a pattern, unless it is there.
    pub fn add(&mut self, ServerNamePattern { domain, wildcard }: ServerNamePattern, value: T) {
        if wildcard {
            self.deepest = self.deepest.max(labels(&domain));
            self.wildcard.entry(domain).or_insert(value);
        } else {
            self.exact.entry(domain).or_insert(value);
        }
    }

    /// The value of the narrowest pattern that has a name, which is in lower case without a dot at its end.
    pub fn of_name(&self, name: &str) -> Option<&T> {
        self.exact.get(name).or_else(|| {
            let longer = labels(name).saturating_sub(self.deepest);
            let mut domains = name.match_indices('.').skip(longer.saturating_sub(1));
            domains.find_map(|(dot, _)| self.wildcard.get(&name[dot + 1..]))
        })
    }

    /// The value of the narrowest pattern that covers another one.
    pub fn covering(&self, ServerNamePattern { domain, wildcard }: &ServerNamePattern) -> Option<&T> {
        let own = self.wildcard.get(domain).filter(|_| *wildcard);
        let above = || domain.match_indices('.').find_map(|(dot, _)| self.wildcard.get(&domain[dot + 1..]));
        if *wildcard { own.or_else(above) } else { self.exact.get(domain).or_else(above) }
    }

    /// The patterns with their values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (ServerNamePattern, &T)> {
        [(&self.exact, false), (&self.wildcard, true)].into_iter().flat_map(|(values, wildcard)| {
            values.iter().map(move |(domain, value)| {
                (ServerNamePattern { domain: Arc::clone(domain), wildcard }, value)
            })
        })
    }
}

fn labels(domain: &str) -> usize {
    domain.split('.').count()
}

#[cfg(test)]
mod tests;
