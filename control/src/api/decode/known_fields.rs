//! Field names of a type at a path, taken from its `Deserialize` implementation: a deserializer follows the path and records the
//! names that the struct at its end announces. Used only to explain an unknown field.

use std::cell::Cell;
use std::marker::PhantomData;

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer as _, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::field_path::Step;

/// The names of the fields of `T` at `path`; none if there is no struct.
pub(crate) fn at<T: DeserializeOwned>(path: &[Step]) -> &'static [&'static str] {
    let found = Cell::new(&[] as &[&str]);
    // The result is always an error, because the probe delivers no value.
    let probe: Result<PhantomData<T>, Error> =
        T::deserialize(Probe { path, found: &found }).map(|_| PhantomData);
    drop(probe);
    found.get()
}

#[derive(Clone, Copy)]
struct Probe<'a> {
    path: &'a [Step],
    found: &'a Cell<&'static [&'static str]>,
}

impl<'a> Probe<'a> {
    fn step(self) -> Result<(&'a Step, Self), Error> {
        let (step, path) = self.path.split_first().ok_or_else(|| Error::custom("end of the path"))?;
        Ok((step, Self { path, ..self }))
    }
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.step()? {
            (Step::Key(key), rest) => visitor.visit_map(OneEntry { key: Some(key), value: rest }),
            (Step::Index(_), rest) => visitor.visit_seq(OneElement(Some(rest))),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.path.is_empty() {
            self.found.set(fields);
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct OneEntry<'a> {
    key: Option<&'a str>,
    value: Probe<'a>,
}

impl<'de> MapAccess<'de> for OneEntry<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(key) = self.key.take() else { return Ok(None) };
        let key: StrDeserializer<'_, Error> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.value)
    }
}

struct OneElement<'a>(Option<Probe<'a>>);

impl<'de> SeqAccess<'de> for OneElement<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.take().map(|probe| seed.deserialize(probe)).transpose()
    }
}
