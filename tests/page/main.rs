//! The status page in a real browser: Debian's Chromium without a window, driven by WebDriver. Gateway and browser share a network
//! namespace with loopback alone, so that whatever the page asks for elsewhere fails.
//!
//! With `SHEAVE_TEST_SCREENSHOTS=FOLDER` the states of the page are put there as pictures.

#![cfg(test)]

use sheave_test_support as support;

mod browser;
mod controller;
mod demo;
mod keyboard;
mod names;
mod reading;
mod scene;
mod server;
mod states;
mod thousands;
