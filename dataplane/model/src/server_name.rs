//! Server names: the frontends of TLS that share a port tell their traffic apart by the name that the client asks for (server name
//! indication, RFC 6066, section 3).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::frontend::Frontend;

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

/// What the server names of a frontend lead to. The most specific pattern has a name: the name itself, then the wildcard with the most
/// labels. A name that no pattern has, or whose pattern leads nowhere, is reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerNames {
    targets: Vec<Arc<Frontend>>,
    exact: HashMap<Arc<str>, Option<usize>>,
    /// By the domain.
    wildcard: HashMap<Arc<str>, Option<usize>>,
    /// Labels of the longest domain of a wildcard: longer suffixes of a name need no look-up.
    deepest: usize,
}

impl ServerNames {
    /// Names that lead to a target, by its index, or nowhere. The first of equal patterns counts.
    ///
    /// Each target is the frontend as it would be if its names were the only ones, split over the backends of its route. It has the
    /// address of the frontend that has the names, and no names itself.
    ///
    /// # Panics
    /// If an index has no target.
    pub fn new(
        targets: Vec<Arc<Frontend>>,
        names: impl IntoIterator<Item = (ServerNamePattern, Option<usize>)>,
    ) -> Self {
        let mut this = Self { targets, ..Self::default() };
        for (pattern, target) in names {
            assert!(target.is_none_or(|target| target < this.targets.len()), "{pattern} has no target");
            if pattern.wildcard {
                this.deepest = this.deepest.max(labels(&pattern.domain));
                this.wildcard.entry(pattern.domain).or_insert(target);
            } else {
                this.exact.entry(pattern.domain).or_insert(target);
            }
        }
        this
    }

    /// The frontends that names lead to.
    pub fn targets(&self) -> &[Arc<Frontend>] {
        &self.targets
    }

    /// Index of the target of a name in lower case without a dot at its end.
    pub fn target(&self, name: &str) -> Option<usize> {
        if let Some(target) = self.exact.get(name) {
            return *target;
        }
        let longer = labels(name).saturating_sub(self.deepest);
        let mut domains = name.match_indices('.').skip(longer.saturating_sub(1));
        domains.find_map(|(dot, _)| self.wildcard.get(&name[dot + 1..])).copied().flatten()
    }

    /// The patterns with what they lead to, sorted.
    pub fn patterns(&self) -> Vec<(ServerNamePattern, Option<&Arc<Frontend>>)> {
        let all = [(&self.exact, false), (&self.wildcard, true)];
        let mut patterns: Vec<_> = all
            .into_iter()
            .flat_map(|(names, wildcard)| {
                names.iter().map(move |(domain, target)| {
                    let pattern = ServerNamePattern { domain: Arc::clone(domain), wildcard };
                    (pattern, target.and_then(|target| self.targets.get(target)))
                })
            })
            .collect();
        patterns.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        patterns
    }
}

fn labels(domain: &str) -> usize {
    domain.split('.').count()
}

#[cfg(test)]
mod tests;
