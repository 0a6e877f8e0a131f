//! The status page in a real browser: Debian's Chromium without a window, driven by WebDriver. Gateway and browser share a network
//! namespace with loopback alone, so that whatever the page asks for elsewhere fails.
//!
//! With `SHEAVE_TEST_SCREENSHOTS=FOLDER` the states of the page are put there as pictures.

use sheave_test_support as support;

#[cfg(test)]
mod browser;
#[cfg(test)]
mod controller;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod keyboard;
#[cfg(test)]
mod names;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod server;
#[cfg(test)]
mod states;
#[cfg(test)]
mod thousands;
