//! Tests through the production path, on the stage
