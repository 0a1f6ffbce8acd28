// Package jws reads who an ACME request claims to be, and changes nothing by
// looking.
//
// What it finds is a claim. No signature is checked here, so anybody can name
// anybody: a caller that charges the named account must be ready to give the
// charge back when the server turns the request away as unproven.
//
// Two kinds of mistake matter, and the rules lean on which is cheaper. Reading
// an account where the server would read another lets a stranger spend for a
// victim, and reading several accounts where the server reads one lets a caller
// grow new budgets; neither may happen for a request that a server accepts.
// Reading none at all is harmless as long as requests without an account are
// not cheaper than those with one, so everything doubtful ends there.
package jws
