// A wire between two ends of a TCP connection. It may have a delay, and it may stall.
#ifndef GEMINID_TESTS_COLLECTIVES_TCP_PROXY_H_
#define GEMINID_TESTS_COLLECTIVES_TCP_PROXY_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>

#include "base/unique_fd.h"

namespace geminid::collectives {

// A child process that forwards data between a port of its own and another port of the loopback
// interface. It forwards both ways, with a delay of `delay`. Make it before the test starts any
// thread.
class TcpProxy {
 public:
  TcpProxy(uint16_t to_port, std::chrono::milliseconds delay);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  uint16_t port() const { return port_; }
  // Stops forwarding, without ending connections. GoOn continues.
  void Stall() const;
  void GoOn() const;

 private:
  uint16_t port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_TCP_PROXY_H_
