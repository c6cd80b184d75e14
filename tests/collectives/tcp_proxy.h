// A wire between two ends of a TCP connection that can be long, and can stand still.
#ifndef GEMINID_TESTS_COLLECTIVES_TCP_PROXY_H_
#define GEMINID_TESTS_COLLECTIVES_TCP_PROXY_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>

#include "base/unique_fd.h"

namespace geminid::collectives {

// A child process that passes on, each way and `delay` later, what it is sent at a port of its own
// on the loopback interface to another one there. Make it before the test starts any thread.
class TcpProxy {
 public:
  TcpProxy(uint16_t to_port, std::chrono::milliseconds delay);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  uint16_t port() const { return port_; }
  // Nothing is passed on from now on, and no connection ends; and again.
  void Stall() const;
  void GoOn() const;

 private:
  uint16_t port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_TCP_PROXY_H_
