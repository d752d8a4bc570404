// Package pools holds nothing but tests: which connections are kept, used again,
// distrusted and closed. It is apart from package transport so that many rounds of
// either fit in the time that go test gives a package.
package pools
