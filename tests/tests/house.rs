//! Checks the parts of the house style that a program can check, and the generated documents.

mod decisions;
mod examples;
mod gate;
mod kinds;
mod modules;
mod phrases;
mod rules_table;
mod tidy;
