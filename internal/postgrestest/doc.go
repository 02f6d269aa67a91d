// Package postgrestest gives tests a PostgreSQL database of their own.
//
// The first test that asks starts a server of Debian's package, as a user
// without rights, on a socket in a temporary directory; it ends with the test
// process, however that ends. In come the options of a server, out come URLs of
// empty databases, or of copies of one that was prepared. Where no server is
// installed a test is skipped with a sentence that says how to install one, and
// fails where CI=true. It must never touch a server that it did not start.
package postgrestest
