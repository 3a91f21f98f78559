// That there is assembly here lets the compiler accept functions without a body: go:linkname finds them elsewhere.
