// Passes bytes between clients and gRPC, and limits them.
//
// gRPC reads bytes as fast as they come, and buffers answers for clients that do not read: one
// connection could take gigabytes without having shown a token. So gRPC gets one end of a pair of
// sockets, and the gate passes bytes on. The gate closes connections with frames that no client of
// gRPC sends, and delays frames beyond their rate. It reads nothing from a client that does not
// read.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_GATE_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_GATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/os/event_loop.h"
#include "daemon/service/entry/http2_budget.h"
#include "daemon/service/entry/http2_inspector.h"
#include "daemon/service/tenants/limits.h"
#include "daemon/service/tenants/tenant_log.h"

namespace geminid::service {

// The most bytes that wait in each direction of a connection.
inline constexpr size_t kGateBytes = 16384;
// How long a client may leave waiting bytes unread before its connection is closed.
inline constexpr int64_t kUnreadNanoseconds = 60'000'000'000;
// Pings of one connection; beyond them the gate closes it. gRPC's clients send at most ten a
// second. For each ping too many gRPC makes an error and a GOAWAY, which wait until they are read.
inline constexpr core::Rate kPings = {.per_second = 20, .burst = 40};
// Descriptors of a connection: its own, and both ends of the pair.
inline constexpr int kDescriptorsPerConnection = 3;

// Belongs to its event loop's thread.
class Http2Gate {
 public:
  // All arguments must outlive it.
  Http2Gate(os::EventLoop* loop, Limits* limits, TenantLog* log);
  ~Http2Gate();

  // Returns gRPC's end of a new pair; the gate passes bytes between the other end and `client`.
  // Connections with the same `budget` name share a budget. `on_closed`: either end has closed.
  absl::StatusOr<base::UniqueFd> Admit(const std::string& tenant, const std::string& budget,
                                       base::UniqueFd client, std::function<void()> on_closed);

  // Continues connections whose time has come, and closes those whose clients do not read.
  void Expire(int64_t now_nanoseconds);
  // When to call Expire next.
  std::optional<int64_t> NextDeadline() const;
  void CloseAll();
  size_t connections() const { return connections_.size(); }

 private:
  struct Connection;
  enum class RelayResult { kNothing, kSome, kEnded };

  void Pump(uint64_t id);
  RelayResult MoveToClient(Connection* connection);
  RelayResult MoveToServer(Connection* connection);
  // Whether the connection must wait, because its tenant's budget is used up.
  bool IsDelayed(Connection* connection);
  void LogDelay(const Connection& connection);
  void Close(uint64_t id);
  std::shared_ptr<Http2Budget> BudgetOf(const std::string& name);
  core::Rate Calls() const;

  os::EventLoop* const loop_;
  Limits* const limits_;
  TenantLog* const log_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::map<std::string, std::shared_ptr<Http2Budget>> budgets_;
  size_t forget_at_ = 64;               // budgets: at this many, unused ones are deleted
  std::set<uint64_t> again_;            // there is more to move
  std::map<uint64_t, int64_t> later_;   // when it may be read again
  std::map<uint64_t, int64_t> unread_;  // when the connection is closed
  int64_t tell_again_at_ = 0;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_GATE_H_
