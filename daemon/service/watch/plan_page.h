// The page of a session's plan, for people with a browser: a picture of it, and the same as tables.
#ifndef GEMINID_DAEMON_SERVICE_WATCH_PLAN_PAGE_H_
#define GEMINID_DAEMON_SERVICE_WATCH_PLAN_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "daemon/core/records/session_spec.h"
#include "daemon/service/sessions/stored_plan.h"

namespace geminid::service {

inline constexpr char kPlanPages[] = "/plan/";
// The most rows of the tables: the page says how many further rows it left out, or joins them.
inline constexpr std::size_t kMostMomentRows = 64;
inline constexpr std::size_t kMostPlaceRows = 256;

// The session that "/plan/7" names; nothing for any other path.
std::optional<uint64_t> SessionOfPath(const std::string& path);

// HTML in one piece that loads nothing and runs nothing. Whatever a client has chosen is text in
// it, never markup.
std::string PlanPage(uint64_t session, const core::SessionSpec& spec,
                     const StoredPlan::Contents& contents);

// The same frame around one sentence.
std::string NoPlanPage(uint64_t session, const std::string& why);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_WATCH_PLAN_PAGE_H_
