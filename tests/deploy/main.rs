//! The manifests under `deploy/`: each is what its kind allows, they agree with one another, with the program and with its
//! version, and no right leads further than it was meant to.

mod admission;
mod announcers;
mod chart;
mod config;
mod crd;
mod files;
mod image;
mod karmada;
mod kustomization;
mod policy;
mod rbac;
mod release;
mod systemd;
mod typed;
mod wiring;
mod workloads;
