//! Tests of the status page in a real browser: Debian's Chromium in headless mode, controlled by WebDriver. Gateway and browser
//! share a network namespace with only loopback, so that any request to other hosts fails.
//!
//! With `SHEAVE_TEST_SCREENSHOTS=FOLDER`, screenshots of the states are saved there.

#![cfg(test)]

use sheave_test_support as support;

mod browser;
mod controller;
mod demo;
mod history;
mod keyboard;
mod names;
mod reading;
mod scene;
mod server;
mod states;
mod thousands;
