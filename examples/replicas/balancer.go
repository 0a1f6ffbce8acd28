package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
)

// balancer sends each request to the next replica. It adds its peer to
// X-Forwarded-For, as a proxy should; the replicas trust it and look at what
// stands before. Only its clients here are believed as well, so that they can
// have an address each.
func balancer(targets []*replica) (http.Handler, error) {
	urls := make([]*url.URL, len(targets))
	for i, t := range targets {
		var err error
		if urls[i], err = url.Parse(t.url); err != nil {
			return nil, err
		}
	}
	var next atomic.Uint64
	return &httputil.ReverseProxy{
		Transport: &http.Transport{MaxIdleConnsPerHost: 128},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(urls[next.Add(1)%uint64(len(urls))])
			r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			r.SetXForwarded()
		},
	}, nil
}
