//! Tokens of the worker's epoll instance: the kind of socket that an event is for, and its slot in the table of that kind. Slots
//! are reused, so a key also carries a serial number of the owner: a late event finds no owner.

use slab::Slab;

/// Serial numbers wrap around at this value, so that they fit a token along with kind and index.
const SERIALS: u32 = 1 << 29;

/// Slot of a [`KeyedSlab`] with its owner's serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    index: u32,
    serial: u32,
}

/// Source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Wakes the worker for commands, and for connections that other workers hand on.
    Waker,
    /// A deadline is due.
    Alarm,
    TcpListener(Key),
    /// The client's socket of a TCP connection.
    Client(Key),
    /// The endpoint's socket of a TCP connection.
    Endpoint(Key),
    UdpSocket(Key),
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        let none = Key { index: 0, serial: 0 };
        let (kind, key) = match token {
            Token::Waker => (0, none),
            Token::TcpListener(key) => (1, key),
            Token::Client(key) => (2, key),
            Token::Endpoint(key) => (3, key),
            Token::UdpSocket(key) => (4, key),
            Token::Alarm => (5, none),
        };
        kind << 61 | Self::from(key.serial) << 32 | Self::from(key.index)
    }
}

impl From<u64> for Token {
    fn from(bits: u64) -> Self {
        let key = Key { index: bits as u32, serial: (bits >> 32) as u32 % SERIALS };
        match bits >> 61 {
            1 => Self::TcpListener(key),
            2 => Self::Client(key),
            3 => Self::Endpoint(key),
            4 => Self::UdpSocket(key),
            5 => Self::Alarm,
            _ => Self::Waker,
        }
    }
}

/// Slab whose entries have keys that are not reused.
#[derive(Debug)]
pub(crate) struct KeyedSlab<T> {
    places: Slab<(u32, T)>,
    serial: u32,
}

impl<T> Default for KeyedSlab<T> {
    fn default() -> Self {
        Self { places: Slab::new(), serial: 0 }
    }
}

impl<T> KeyedSlab<T> {
    /// Inserts a value; `new` receives its key.
    pub(crate) fn insert_with(&mut self, new: impl FnOnce(Key) -> T) -> Key {
        self.serial = (self.serial + 1) % SERIALS;
        let place = self.places.vacant_entry();
        // Entries have sockets, and the number of descriptors fits an `int`.
        let key = Key { index: place.key() as u32, serial: self.serial };
        place.insert((self.serial, new(key)));
        key
    }

    /// The value, if it still occupies its slot.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (serial, value) = self.places.get_mut(key.index as usize)?;
        (*serial == key.serial).then_some(value)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get_mut(key)?;
        self.places.try_remove(key.index as usize).map(|(_, value)| value)
    }

    /// The values in a range of slots, with their keys: for walks in small steps.
    pub(crate) fn range(&self, places: std::ops::Range<usize>) -> impl Iterator<Item = (Key, &T)> {
        let last = places.end.min(self.capacity());
        (places.start..last).filter_map(|index| {
            let (serial, value) = self.places.get(index)?;
            Some((Key { index: index as u32, serial: *serial }, value))
        })
    }

    /// The key of the value in this slot.
    pub(crate) fn key_at(&self, index: usize) -> Option<Key> {
        self.places.get(index).map(|(serial, _)| Key { index: index as u32, serial: *serial })
    }

    /// Number of slots, occupied or not.
    pub(crate) fn capacity(&self) -> usize {
        self.places.capacity()
    }

    /// Releases memory when most slots are empty.
    pub(crate) fn shrink(&mut self) {
        if self.places.len() < self.places.capacity() / 4 {
            self.places.shrink_to_fit();
        }
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.places.drain().map(|(_, value)| value)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.places
            .iter_mut()
            .map(|(index, (serial, value))| (Key { index: index as u32, serial: *serial }, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        let key = Key { index: u32::MAX, serial: SERIALS - 1 };
        let tokens = [
            Token::Waker,
            Token::Alarm,
            Token::TcpListener(key),
            Token::Client(key),
            Token::Endpoint(key),
            Token::UdpSocket(key),
        ];
        for token in tokens {
            assert_eq!(Token::from(u64::from(token)), token);
        }
    }

    #[test]
    fn who_has_lost_a_place_does_not_get_its_next_owner() {
        let mut slab = KeyedSlab::default();
        let first = slab.insert_with(|_| "first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert_with(|_| "second");
        assert_eq!(first.index, second.index);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.remove(second), Some("second"));
    }
}
