// Where clients come in: a thread and an event loop of its own.
//
// Whoever may connect can do so as often as a processor can, and each connection costs something
// before it can be refused. So it happens apart from the loop that serves transfers, on a thread
// that gives way to it and to the trainers.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_ENTRANCE_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_ENTRANCE_H_

#include <atomic>
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

  // For what comes in here. Only the entrance's thread may use it once it was started.
  os::EventLoop* loop() { return loop_.get(); }

  // Both belong to the entrance's thread from now on, until Stop. RESOURCE_EXHAUSTED where the
  // system gives no thread.
  absl::Status Start(AttachServer* attach, RpcServer* rpc);
  // Waits for its turn to end. They belong to the caller again.
  void Stop();

 private:
  Entrance(std::unique_ptr<os::EventLoop> loop, Vitals* vitals)
      : loop_(std::move(loop)), vitals_(vitals) {}
  void Run(AttachServer* attach, RpcServer* rpc);

  const std::unique_ptr<os::EventLoop> loop_;
  Vitals* const vitals_;
  bool stopping_ = false;  // of the entrance's thread
  std::thread thread_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_ENTRANCE_H_
