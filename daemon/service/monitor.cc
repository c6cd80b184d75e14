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
  std::vector<shm::SessionId> ids;
  hub_->Inspect([&](const core::Engine& engine, const auto& sessions) {
    CheckInvariants(engine);
    for (const core::Account& account : engine.ledger().Accounts()) {
      reading.accounts.push_back({account, engine.ledger().Totals(account)});
    }
    reading.lines = engine.ledger().Lines();
    for (const core::SessionSnapshot& snapshot : engine.Sessions()) {
      metrics::SessionReading session;
      ids.push_back(snapshot.id);
      session.state = snapshot.state;
      if (const auto found = sessions.find(snapshot.id); found != sessions.end()) {
        session.plan_transfer_bytes = found->second->plan.transfer_bytes;
        session.plan_transfer_bytes_lower_bound = found->second->plan.transfer_bytes_lower_bound;
      }
      reading.sessions.push_back(std::move(session));
    }
    for (const core::DeviceDescription& device : engine.devices()) {
      metrics::Reading::DeviceReading& link = reading.devices.emplace_back();
      link.transfers = engine.transfers().TotalsOf(device.index);
      link.overdue_tickets = engine.transfers().OverdueTickets(device.index);
      for (const shm::Direction direction :
           {shm::Direction::kHostToDevice, shm::Direction::kDeviceToHost}) {
        link.tickets_in_flight[static_cast<size_t>(core::Index(direction))] =
            engine.transfers().FlightOf(device.index, direction).tickets;
      }
    }
    for (const core::SharedLimit* limit : {&engine.session_limit(), &engine.chunk_limit()}) {
      reading.limits.push_back({limit->name(), limit->total(), limit->used()});
    }
    reading.refusals = engine.refusals().Read();
    reading.counters = engine.counters();
    reading.overhead_bytes = sessions.size() * memory::SessionSegments::Bytes() +
                             core::Manifest::BytesFor(engine.manifest().record_count());
  });
  const config::TenantShares shares = hub_->limits().Get();
  for (const config::ShareKey& key : config::kShareKeys) {
    reading.tenant_limits[key.key] = shares.*key.value;
  }
  const std::vector<core::Refusals::Row> refused = hub_->limits().Refused();
  reading.refusals.insert(reading.refusals.end(), refused.begin(), refused.end());
  const metrics::SessionCounters counted = hub_->CountedSessions();
  reading.series = counted.Read();
  for (size_t i = 0; i < ids.size(); ++i) reading.sessions[i].labels = counted.LabelsOf(ids[i]);
  reading.invariant_violations = violations_;
  return reading;
}

void Monitor::CheckInvariants(const core::Engine& engine) const {
  const int64_t now = os::MonotonicNanoseconds();
  if (now < next_check_) return;
  next_check_ = now + kCheckEveryNanoseconds;
  const absl::Status status = engine.CheckSome(kChecked, &checked_to_);
  if (status.ok()) return;
  ++violations_;
  os::Log(os::LogLevel::kError, "the accounts contradict themselves",
          {{"error", std::string(status.message())}});
}

metrics::HttpResponse Monitor::Handle(const std::string& path) const {
  metrics::HttpResponse response;
  if (path == "/metrics") {
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    if (page_.empty() || pages_.Take(Now())) page_ = metrics::TextPage(Collect());
    response.body = page_;
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
