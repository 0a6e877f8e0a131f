//! Attributes of netlink messages (`nlattr` in linux/netlink.h), as they are written and read.
//!
//! The types of `netlink-packet-netfilter` are not used: its parser formats the whole buffer as text for each element of a list, which
//! takes a minute for a dump of 100,000 elements.

/// NLA_F_NESTED and NLA_TYPE_MASK (linux/netlink.h).
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;
/// The length of `nlattr`.
const ATTRIBUTE_HEADER: usize = 4;

/// Attributes of a message or of another attribute, as they are written.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Their length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Encoded form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends an attribute with this value.
    pub fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let begin = self.begin(kind);
        self.0.extend_from_slice(value);
        self.end(begin)
    }

    /// Appends an attribute with a number in network order.
    pub fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Appends an attribute with a text that ends with a zero.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let begin = self.begin(kind);
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
        self.end(begin)
    }

    /// Appends an attribute that consists of attributes.
    pub fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let begin = self.begin(NESTED | kind);
        fill(self);
        self.end(begin)
    }

    /// Appends others.
    pub fn append(&mut self, others: &Self) {
        self.append_bytes(&others.0);
    }

    /// Appends attributes as they were read.
    pub fn append_bytes(&mut self, attributes: &[u8]) {
        self.0.extend_from_slice(attributes);
    }

    fn begin(&mut self, kind: u16) -> usize {
        let begin = self.0.len();
        self.0.extend_from_slice(&0_u16.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        begin
    }

    /// Writes the length of the attribute that begins here. Lists of elements alone can be long, and are split before.
    fn end(&mut self, begin: usize) -> &mut Self {
        let length = u16::try_from(self.0.len() - begin).unwrap_or(u16::MAX);
        self.0[begin..begin + 2].copy_from_slice(&length.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(ATTRIBUTE_HEADER), 0);
        self
    }
}

/// Walks over attributes: their types and values. Ends at one whose length is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a>(pub &'a [u8]);

impl<'a> Walk<'a> {
    /// The first attribute of a type.
    pub fn find(mut self, kind: u16) -> Option<&'a [u8]> {
        Some(Iterator::find(&mut self, |&(found, _)| found == kind)?.1)
    }

    /// The number, in network order, of the first attribute of a type.
    pub fn number(self, kind: u16) -> Option<u32> {
        Some(u32::from_be_bytes(self.find(kind)?.try_into().ok()?))
    }

    /// The text of the first attribute of a type.
    pub fn text(self, kind: u16) -> Option<&'a str> {
        let value = self.find(kind)?;
        std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = self.0.split_first_chunk::<ATTRIBUTE_HEADER>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]])).checked_sub(ATTRIBUTE_HEADER)?;
        let value = rest.get(..length)?;
        self.0 = rest.get(length.next_multiple_of(ATTRIBUTE_HEADER)..).unwrap_or_default();
        Some((u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK, value))
    }
}
