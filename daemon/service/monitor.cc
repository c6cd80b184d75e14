#include "daemon/service/monitor.h"

#include "daemon/metrics/process.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"

namespace geminid::service {

std::vector<prometheus::MetricFamily> Monitor::Collect() const { return metrics::Families(Read()); }

metrics::Reading Monitor::Read() const {
  metrics::Reading reading;
  reading.version = version_;
  reading.process = metrics::ReadProcess();
  hub_->Inspect([&](const core::Engine& engine, const auto& sessions) {
    CheckInvariants(engine);
    reading.tiers = {engine.ledger().Totals(shm::Tier::kDevice),
                     engine.ledger().Totals(shm::Tier::kHost),
                     engine.ledger().Totals(shm::Tier::kDisk)};
    reading.lines = engine.ledger().Lines();
    for (const core::SessionSnapshot& snapshot : engine.Sessions()) {
      metrics::SessionReading session;
      session.workload = snapshot.spec.job;
      session.rank = snapshot.spec.rank;
      session.state = snapshot.state;
      if (const auto found = sessions.find(snapshot.id); found != sessions.end()) {
        session.stall_nanoseconds = found->second->ReadNumbers().stall_nanoseconds;
        session.plan_transfer_bytes = found->second->plan.transfer_bytes;
        session.plan_transfer_bytes_lower_bound = found->second->plan.transfer_bytes_lower_bound;
      }
      reading.sessions.push_back(std::move(session));
    }
    reading.transfers = engine.transfers().totals();
    for (const shm::Direction direction :
         {shm::Direction::kHostToDevice, shm::Direction::kDeviceToHost}) {
      reading.tickets_in_flight[static_cast<size_t>(core::Index(direction))] =
          engine.transfers().FlightOf(direction).tickets;
    }
    reading.overdue_tickets = engine.transfers().overdue_tickets();
    reading.counters = engine.counters();
  });
  reading.invariant_violations = violations_;
  return reading;
}

void Monitor::CheckInvariants(const core::Engine& engine) const {
  const int64_t now = os::MonotonicNanoseconds();
  if (now < next_check_) return;
  next_check_ = now + kCheckEveryNanoseconds;
  const absl::Status status = engine.Check();
  if (status.ok()) return;
  ++violations_;
  os::Log(os::LogLevel::kError, "the accounts contradict themselves",
          {{"error", std::string(status.message())}});
}

metrics::HttpResponse Monitor::Handle(const std::string& path) const {
  metrics::HttpResponse response;
  if (path == "/metrics") {
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = metrics::TextPage(Collect());
  } else if (path == "/healthz") {
    response.body = "ok\n";
  } else {
    response.code = 404;
    response.reason = "Not Found";
    response.body = "There are /metrics and /healthz here.\n";
  }
  return response;
}

}  // namespace geminid::service
