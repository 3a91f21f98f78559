//! The house style, where programs can check it, and generated documents.

mod decisions;
mod examples;
mod gate;
mod kinds;
mod modules;
mod phrases;
mod rules_table;
mod tidy;
