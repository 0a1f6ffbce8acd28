module github.com/weir-go/weir/examples

go 1.26.0

replace github.com/weir-go/weir => ../

require (
	github.com/go-acme/lego/v5 v5.6.0
	github.com/letsencrypt/pebble/v2 v2.10.3
	github.com/stretchr/testify v1.12.1
	golang.org/x/crypto v0.59.0
)

require (
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/go-jose/go-jose/v4 v4.1.8 // indirect
	github.com/letsencrypt/challtestsrv v1.4.2 // indirect
	github.com/miekg/dns v1.1.73 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	software.sslmate.com/src/go-pkcs12 v0.7.4 // indirect
)
