#include "daemon/service/entry/reloader.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "daemon/config/guarantees.h"
#include "daemon/config/reload.h"
#include "daemon/os/log.h"
#include "daemon/service/entry/engine_settings.h"

namespace geminid::service {

double WallSeconds() { return absl::ToDoubleSeconds(base::WallClockNow() - absl::UnixEpoch()); }

void Reloader::Begin(SessionHub* hub, gpus::Gpus* gpus) {
  hub_ = hub;
  gpus_ = gpus;
  vitals_->last_good_reload_seconds.store(WallSeconds());
}

void Reloader::Refuse(const absl::Status& why) {
  vitals_->last_reload_good.store(false);
  os::Log(os::LogLevel::kError,
          "SIGHUP: the new configuration is wrong; the old one stays in force",
          {{"error", std::string(why.message())}});
}

void Reloader::Reload() {
  if (!read_) {
    os::Log(os::LogLevel::kInfo, "SIGHUP: a private daemon has no configuration to read again");
    return;
  }
  const absl::StatusOr<config::Settings> read = read_();
  if (!read.ok()) return Refuse(read.status());
  const config::Settings before = in_force_.Get();
  config::Reload reload = config::MergeReload(before, *read);
  const config::Settings& now = reload.settings;
  if (const absl::Status status = config::CheckGuarantees(now); !status.ok()) return Refuse(status);
  hub_->SetLimits(RunningLimitsOf(now));
  limits_->Set(now.shares);
  gpus_->Retry();
  in_force_.Set(now);
  vitals_->last_reload_good.store(true);
  vitals_->last_good_reload_seconds.store(WallSeconds());
  LogReload(before, now, reload.changed, reload.needs_restart);
}

void Reloader::LogReload(const config::Settings& before, const config::Settings& now,
                         const std::vector<std::string>& changed,
                         const std::vector<std::string>& needs_restart) {
  const auto listed = [](const std::vector<std::string>& changes) {
    return changes.empty() ? "nothing" : absl::StrJoin(changes, "; ");
  };
  os::ConfigureLog(std::min(before.log_level, now.log_level), now.log_format);
  os::Log(needs_restart.empty() ? os::LogLevel::kInfo : os::LogLevel::kWarning,
          "SIGHUP: configuration read again",
          {{"changed", listed(changed)}, {"needs_restart", listed(needs_restart)}});
  os::ConfigureLog(now.log_level, now.log_format);
}

}  // namespace geminid::service
