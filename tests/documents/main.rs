//! What the repository says about itself is true: the sources keep to the rules of the house.

#[cfg(test)]
mod architecture;
#[cfg(test)]
mod known;
#[cfg(test)]
mod sources;
