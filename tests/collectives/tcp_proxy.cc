#include "tests/collectives/tcp_proxy.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "collectives/tcp/socket.h"

namespace geminid::collectives {
namespace {

using Clock = std::chrono::steady_clock;

// One direction of a connection.
struct Flow {
  int from = -1;
  int to = -1;
  bool over = false;
  std::deque<std::pair<Clock::time_point, std::string>> travelling{};  // due, oldest first
};

struct Wire {
  base::UniqueFd near, far;
  Flow there{}, back{};
};

void TakeIn(Flow& flow, std::chrono::milliseconds delay) {
  char bytes[64 * 1024];
  const ssize_t count = ::recv(flow.from, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (count < 0) return;
  // The end of a stream travels as well.
  flow.travelling.emplace_back(Clock::now() + delay,
                               std::string(bytes, static_cast<size_t>(count)));
  flow.over = count == 0;
}

void PassOn(Flow& flow) {
  while (!flow.travelling.empty() && flow.travelling.front().first <= Clock::now()) {
    const std::string& bytes = flow.travelling.front().second;
    if (bytes.empty()) {
      ::shutdown(flow.to, SHUT_WR);
    } else {
      (void)SendAll(flow.to, bytes);
    }
    flow.travelling.pop_front();
  }
}

[[noreturn]] void Serve(int listener, uint16_t to_port, std::chrono::milliseconds delay) {
  std::list<Wire> wires;
  for (;;) {
    std::vector<pollfd> polls = {{.fd = listener, .events = POLLIN, .revents = 0}};
    bool waiting = false;
    for (const Wire& wire : wires) {
      for (const Flow* flow : {&wire.there, &wire.back}) {
        polls.push_back({.fd = flow->over ? -1 : flow->from, .events = POLLIN, .revents = 0});
        waiting = waiting || !flow->travelling.empty();
      }
    }
    (void)::poll(polls.data(), polls.size(), waiting ? 1 : -1);
    size_t at = 1;
    for (Wire& wire : wires) {
      for (Flow* flow : {&wire.there, &wire.back}) {
        if (polls[at++].revents != 0) TakeIn(*flow, delay);
        PassOn(*flow);
      }
    }
    if (polls[0].revents == 0) continue;
    Wire wire{.near = AcceptTcp(listener),
              .far = *DialTcpOnce("127.0.0.1", to_port, base::Deadline::In(absl::Seconds(5)))};
    wire.there = {.from = wire.near.get(), .to = wire.far.get()};
    wire.back = {.from = wire.far.get(), .to = wire.near.get()};
    wires.push_back(std::move(wire));
  }
}

}  // namespace

TcpProxy::TcpProxy(uint16_t to_port, std::chrono::milliseconds delay) {
  const base::UniqueFd listener = *ListenTcp("127.0.0.1", 0);
  port_ = *PortOf(listener.get());
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Serve(listener.get(), to_port, delay);
}

TcpProxy::~TcpProxy() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

// Stops the child, and waits until it has stopped.
void TcpProxy::Stall() const {
  ::kill(pid_, SIGSTOP);
  siginfo_t halted = {};
  (void)::waitid(P_PID, static_cast<id_t>(pid_), &halted, WSTOPPED);
}

void TcpProxy::GoOn() const { ::kill(pid_, SIGCONT); }

}  // namespace geminid::collectives
