//! Fragments as a stage.
