//! Tests of the manifests under `deploy/`: they match the types of their kinds, agree with one another, with the program
//! and with its version, and grant no more than intended.

mod admission;
mod announcers;
mod chart;
mod config;
mod crd;
mod files;
mod gateway_objects;
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
