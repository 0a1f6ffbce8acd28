package clientip_test

import (
	"fmt"
	"net/http"

	"github.com/weir-go/weir/internal/clientip"
)

func ExampleResolver_Resolve() {
	resolver, faults, _ := clientip.New(clientip.Config{Trusted: []string{"10.0.0.0/8"}})
	if len(faults) > 0 {
		panic(faults)
	}
	req := &http.Request{
		RemoteAddr: "10.0.0.5:4711",
		Header:     http.Header{"X-Forwarded-For": {"6.6.6.6, 203.0.113.7, 10.0.0.2"}},
	}
	who := resolver.Resolve(req)
	fmt.Println(who.Addr, who.Source)
	fmt.Println(clientip.Prefix(who.Addr, 32, 64))
	// Output:
	// 203.0.113.7 xff
	// 203.0.113.7/32
}
