#include "daemon/service/watch/health.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace geminid::service {
namespace {

using Reasons = std::vector<std::string>;

metrics::HttpResponse Answer(const Reasons& reasons) {
  metrics::HttpResponse response;
  response.body = reasons.empty() ? "ok\n" : absl::StrCat(absl::StrJoin(reasons, "\n"), "\n");
  if (reasons.empty()) return response;
  response.code = 503;
  response.reason = "Service Unavailable";
  return response;
}

void AddLife(const HealthReading& reading, Reasons* reasons) {
  if (reading.turn < kLongestTurn) return;
  reasons->push_back(absl::StrFormat(
      "the event loop has stood still for %.0f s; restart the daemon", reading.turn.seconds()));
}

void AddAccounts(const HealthReading& reading, Reasons* reasons) {
  for (const std::string& contradiction : reading.contradictions) {
    reasons->push_back(absl::StrCat("the accounts contradict themselves: ", contradiction,
                                    "; let the jobs end, restart the daemon and report it"));
  }
}

void AddSockets(const HealthReading& reading, Reasons* reasons) {
  reasons->insert(reasons->end(), reading.lost_sockets.begin(), reading.lost_sockets.end());
}

void AddSurvival(const HealthReading& reading, Reasons* reasons) {
  if (reading.sessions_survive) return;
  reasons->push_back(
      "geminid-holder does not run: if this daemon dies, its sessions end; the log says why, and a "
      "reload (SIGHUP) has the daemon try again");
}

void AddGpus(const HealthReading& reading, Reasons* reasons) {
  reasons->insert(reasons->end(), reading.gpus_without_memory.begin(),
                  reading.gpus_without_memory.end());
}

}  // namespace

metrics::HttpResponse Livez(const HealthReading& reading) {
  Reasons reasons;
  AddLife(reading, &reasons);
  return Answer(reasons);
}

metrics::HttpResponse Readyz(const HealthReading& reading) {
  Reasons reasons;
  if (!reading.serving) reasons.push_back("it is starting");
  if (reading.stopping) reasons.push_back("it is stopping");
  if (reading.drained) reasons.push_back("it is drained; geminictl drain --undo ends that");
  AddLife(reading, &reasons);
  AddAccounts(reading, &reasons);
  AddSockets(reading, &reasons);
  if (!reading.some_device_serves) AddGpus(reading, &reasons);
  return Answer(reasons);
}

metrics::HttpResponse Healthz(const HealthReading& reading) {
  Reasons reasons;
  AddLife(reading, &reasons);
  AddAccounts(reading, &reasons);
  AddSockets(reading, &reasons);
  AddSurvival(reading, &reasons);
  AddGpus(reading, &reasons);
  return Answer(reasons);
}

}  // namespace geminid::service
