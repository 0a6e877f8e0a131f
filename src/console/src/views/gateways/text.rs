//! Text of `sheave gateways`: a row for each gateway and each address.

use super::{AddressView, GatewaysView, MemberView, TieBreakerView};
use crate::views::escape::line;
use crate::views::text_table::{columns, or_dash};

impl MemberView {
    fn row(&self, own: &str) -> Vec<String> {
        let ago = |time: u64| format!("{time} ms ago");
        let heard = match (&self.heard_via, self.heard) {
            _ if self.node == own => "-".to_owned(),
            (_, true) => self.silent_milliseconds.map_or("yes".to_owned(), ago),
            (Some(via), false) => format!("by {via}"),
            (None, false) => "no".to_owned(),
        };
        let state = match self.state.as_str() {
            "candidate" if !self.heard && self.heard_via.is_none() && self.node != own => "silent",
            "candidate" => "alive",
            "notAlive" => "dead",
            "notEligible" => "waiting",
            other => other,
        };
        let agrees = match (&self.disagreement, self.agrees) {
            (Some(about), _) => format!("no: {about}"),
            (None, true) => "yes".to_owned(),
            (None, false) => "no".to_owned(),
        };
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let address = self.address.as_deref().unwrap_or_default();
        vec![self.node.clone(), or_dash(address), state.to_owned(), heard, agrees, yes(self.ready)]
    }
}

impl GatewaysView {
    /// Text for people.
    pub(crate) fn to_text(&self) -> String {
        if self.state.is_empty() {
            return line(&format!("{} announces no addresses (`announce` in the configuration).", self.node));
        }
        if self.shared {
            return self.shared_to_text();
        }
        let state = match self.state.as_str() {
            "eligible" => "may own addresses",
            "minority" => "owns addresses without a majority of the gateways",
            "holdDown" => "has not been heard for long enough to own addresses",
            "leaving" => "hands its addresses over, since it is about to end",
            _ => "owns no addresses, since too few gateways hear it",
        };
        let mut text =
            format!("{} {state}; heard by {} of {} gateways", self.node, self.heard_by, self.counted);
        if let Some(TieBreakerView { address, reachable }) = &self.tie_breaker {
            let answers = if *reachable { "answers" } else { "does not answer" };
            text += &format!(", and {address}, the tie-breaker, {answers}");
        }
        let silence = match self.fail_after_milliseconds {
            0 => String::new(),
            milliseconds => format!(" A gateway is dead after {milliseconds} ms of silence."),
        };
        text = line(&(text + "." + &silence)) + "\n";
        let head = ["NODE", "ADDRESS", "STATE", "HEARD", "AGREES", "READY"];
        text += &table(&head, self.members.iter().map(|member| member.row(&self.node)));
        text.push('\n');
        text += &table(
            &["ADDRESS", "OWNER", "HERE"],
            self.addresses.iter().map(|address| address.row().to_vec()),
        );
        self.with_warnings(text)
    }

    fn shared_to_text(&self) -> String {
        let does = match self.state.as_str() {
            "leaving" => "is about to end, and has routers use other gateways",
            _ => "announces by BGP what it can serve, as each gateway does",
        };
        let rows = self.addresses.iter().map(|address| {
            let [ip, _, here] = address.row();
            vec![ip, here]
        });
        let headline = line(&format!("{} {does}.", self.node));
        self.with_warnings(headline + "\n" + &table(&["ADDRESS", "HERE"], rows))
    }

    fn with_warnings(&self, mut text: String) -> String {
        text.extend(
            self.warnings.iter().map(|warning| format!("\n{}", line(&format!("Warning: {warning}")))),
        );
        text
    }
}

impl AddressView {
    fn row(&self) -> [String; 3] {
        let here = match (&self.message, self.interfaces.is_empty()) {
            (Some(message), _) if self.state.is_empty() => message.clone(),
            (Some(message), _) => format!("{}: {message}", self.state),
            (None, false) => format!("{} on {}", self.state, self.interfaces.join(", ")),
            (None, true) => or_dash(&self.state),
        };
        [self.address.clone(), or_dash(self.owner.as_deref().unwrap_or_default()), here]
    }
}

fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|&title| title.to_owned()).collect();
    columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::gateways::tests::{address, view};

    #[test]
    fn the_text_has_a_row_for_each_gateway_and_address() {
        let expected = "\
gw-1 may own addresses; heard by 3 of 4 gateways, and 192.0.2.254, the tie-breaker, answers. A gateway is dead after 350 ms of silence.

  NODE  ADDRESS    STATE    HEARD      AGREES         READY
  gw-1  -          alive    -          yes            yes
  gw-2  192.0.2.2  alive    40 ms ago  yes            yes
  gw-3  -          waiting  by gw-2    no             yes
  gw-4  -          dead     no         no             yes
  gw-5  -          silent   no         no: addresses  yes

  ADDRESS       OWNER  HERE
  203.0.113.10  gw-1   announced on eth0, eth1
  203.0.113.11  gw-1   conflict: 00:00:5e:00:53:01 on eth0 uses it; defended
  203.0.113.12  gw-2   -
  203.0.113.13  -      no gateway that is alive has an endpoint that may serve it
  203.0.113.14  -      the node selector of AddressPool edge leaves out every gateway that is alive

Warning: net.ipv4.conf.all.arp_ignore is 8
";
        assert_eq!(view().to_text(), expected);
        let shared = "\
gw-1 announces by BGP what it can serve, as each gateway does.

  ADDRESS       HERE
  203.0.113.10  announced on sheave0
  203.0.113.13  no endpoint

Warning: net.ipv4.conf.all.arp_ignore is 8
";
        let on = AddressView {
            state: "announced".to_owned(),
            interfaces: vec!["sheave0".to_owned()],
            ..address("203.0.113.10", None)
        };
        let elsewhere =
            AddressView { message: Some("no endpoint".to_owned()), ..address("203.0.113.13", None) };
        let addresses = vec![on, elsewhere];
        assert_eq!(GatewaysView { shared: true, addresses, ..view() }.to_text(), shared);
        let none = GatewaysView { node: "gw-1".to_owned(), ..GatewaysView::default() };
        assert_eq!(none.to_text(), "gw-1 announces no addresses (`announce` in the configuration).\n");
    }
}
