// The entrance accepts clients, on a thread and an event loop of its own.
//
// Clients can connect as fast as a processor allows, and each connection costs work before it can
// be refused. So they are accepted apart from the loop that serves transfers, on a thread of lower
// priority than that loop and the trainers.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_ENTRANCE_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_ENTRANCE_H_

#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "daemon/os/event_loop.h"
#include "daemon/service/entry/attach_server.h"
#include "daemon/service/entry/rpc_server.h"
#include "daemon/service/watch/vitals.h"

namespace geminid::service {

class Entrance {
 public:
  // `vitals` outlives it.
  static absl::StatusOr<std::unique_ptr<Entrance>> Create(Vitals* vitals);
  ~Entrance();  // stops it

  // The loop for the entrance's servers. After Start only the entrance's thread may use it.
  os::EventLoop* loop() { return loop_.get(); }

  // Both servers belong to the entrance's thread from now on, until Stop. RESOURCE_EXHAUSTED: the
  // system gives no thread.
  absl::Status Start(AttachServer* attach, RpcServer* rpc);
  // Waits until the thread's turn ends. Both servers belong to the caller again.
  void Stop();

 private:
  Entrance(std::unique_ptr<os::EventLoop> loop, Vitals* vitals)
      : loop_(std::move(loop)), vitals_(vitals) {}
  void Run(AttachServer* attach, RpcServer* rpc);

  const std::unique_ptr<os::EventLoop> loop_;
  Vitals* const vitals_;
  bool stopping_ = false;  // for the entrance's thread alone
  std::thread thread_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_ENTRANCE_H_
