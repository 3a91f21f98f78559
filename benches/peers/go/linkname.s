// The package contains assembly so that the compiler accepts functions without a body, which go:linkname finds.
