//! An API server as the source of objects: watches that survive whatever happens to the server.
