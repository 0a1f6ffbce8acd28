package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// redisServer is a real server process on a loopback port, which keeps nothing
// on disk.
type redisServer struct {
	program, addr, dir string
	process            *exec.Cmd
}

// startRedis starts a server in a folder of its own.
func startRedis(ctx context.Context) (*redisServer, error) {
	program := os.Getenv("REDIS_SERVER")
	if program == "" {
		program = "redis-server"
	}
	program, err := exec.LookPath(program)
	if err != nil {
		return nil, errors.New("no redis-server in PATH: install it (apt-get install redis-server), or name one in REDIS_SERVER")
	}
	dir, err := os.MkdirTemp("", "weir-replicas-")
	if err != nil {
		return nil, err
	}
	s := &redisServer{program: program, dir: dir}
	for range 5 { // a port that was free may be taken by the time it is wanted
		if s.addr, err = freePort(); err == nil {
			if err = s.start(ctx); err == nil {
				return s, nil
			}
		}
	}
	s.stop()
	return nil, fmt.Errorf("redis-server: %w", err)
}

func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// start starts the process, empty, and waits until it answers.
func (s *redisServer) start(ctx context.Context) error {
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	s.process = exec.CommandContext(ctx, s.program, "--bind", "127.0.0.1", "--port", port, "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--maxmemory", "64mb", "--maxmemory-policy", "volatile-ttl")
	if err := s.process.Start(); err != nil {
		return err
	}
	for range 200 {
		if s.answers() {
			return nil
		}
		select {
		case <-time.After(25 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.kill()
	return errors.New("no answer within 5 seconds")
}

func (s *redisServer) answers() bool {
	c, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && strings.HasPrefix(line, "+PONG")
}

// hang stops the process where it stands: connections stay open and nobody
// answers. resume lets it go on.
func (s *redisServer) hang() error   { return s.process.Process.Signal(syscall.SIGSTOP) }
func (s *redisServer) resume() error { return s.process.Process.Signal(syscall.SIGCONT) }

// kill ends the process as a crash does, and all counts with it.
func (s *redisServer) kill() {
	if s.process != nil && s.process.Process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait() // killed, as it should be
	}
	s.process = nil
}

// stop ends the process and removes its folder.
func (s *redisServer) stop() {
	s.kill()
	_ = os.RemoveAll(s.dir)
}
