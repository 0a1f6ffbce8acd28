// Package weir keeps the public endpoints of a PKI alive under abuse.
package weir
