// Reads the daemon's settings again (SIGHUP), and puts those into force that may change while
// sessions are attached.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_RELOADER_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_RELOADER_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/settings.h"
#include "daemon/gpus/gpus.h"
#include "daemon/service/calls/settings_in_force.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/tenants/limits.h"
#include "daemon/service/watch/vitals.h"

namespace geminid::service {

// By the wall clock, in seconds since the Unix epoch: for people.
double WallSeconds();

// Belongs to the event loop's thread.
class Reloader {
 public:
  using ReadSettings = std::function<absl::StatusOr<config::Settings>()>;

  // `read` empty: there is nothing to read again. `limits` and `vitals` outlive it.
  Reloader(const config::Settings& settings, ReadSettings read, Limits* limits, Vitals* vitals)
      : in_force_(settings), read_(std::move(read)), limits_(limits), vitals_(vitals) {}

  // The settings of the start are in force. Both arguments must outlive it.
  void Begin(SessionHub* hub, gpus::Gpus* gpus);
  // To be called after Begin. An error is logged, and then all settings stay as they were.
  void Reload();

  // The settings that hold now; for any thread.
  const SettingsInForce& in_force() const { return in_force_; }

 private:
  void Refuse(const absl::Status& why);
  // Logs a reload at the more verbose of the old and the new level, because the sender of the
  // signal looks for it.
  static void LogReload(const config::Settings& before, const config::Settings& now,
                        const std::vector<std::string>& changed,
                        const std::vector<std::string>& needs_restart);

  SettingsInForce in_force_;
  const ReadSettings read_;
  Limits* const limits_;
  Vitals* const vitals_;
  SessionHub* hub_ = nullptr;
  gpus::Gpus* gpus_ = nullptr;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_RELOADER_H_
