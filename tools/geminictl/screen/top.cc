#include "tools/geminictl/screen/top.h"

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "daemon/os/event.h"
#include "tools/geminictl/daemon/daemon_client.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/output/json_message.h"
#include "tools/geminictl/screen/history.h"
#include "tools/geminictl/screen/terminal.h"
#include "tools/geminictl/screen/top_view.h"

namespace geminid::ctl {
namespace {

// The width without a terminal, where long lines do no harm.
constexpr size_t kUnbrokenWidth = 200;
constexpr char kKeys[] = "q quit  s by stall  b by bytes";

absl::StatusOr<Reading> Read(const Context& context) {
  // A new connection each time: the daemon may have been restarted in between.
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<DaemonClient> client,
                           DaemonClient::Connect(context.socket, context.timeout));
  Reading reading;
  GEMINID_ASSIGN_OR_RETURN(reading.status, client->GetStatus());
  GEMINID_ASSIGN_OR_RETURN(reading.sessions, client->ListSessions());
  reading.taken_seconds = static_cast<double>(os::MonotonicNanoseconds()) * 1e-9;
  return reading;
}

int Once(const Context& context, const Reading& reading, TopOrder order) {
  if (context.json) {
    *context.out << JsonDocument({&reading.status.ledger(), &reading.sessions});
  } else {
    *context.out << DrawTop(reading, nullptr, order, {.width = kUnbrokenWidth, .height = 0},
                            context.style);
  }
  return base::kExitOk;
}

// The readings of a live view: the latest two of one daemon, or why there is none now.
struct Readings {
  std::optional<Reading> now;
  std::optional<Reading> before;
  absl::Status failure;
  History history;

  void Add(absl::StatusOr<Reading> reading) {
    failure = reading.status();
    if (!reading.ok()) return;
    const bool same_daemon =
        now.has_value() && now->status.daemon_epoch() == reading->status.daemon_epoch();
    if (!same_daemon) history.Clear();
    before = same_daemon ? std::move(now) : std::nullopt;
    now = *std::move(reading);
    history.Add(*now, before.has_value() ? &*before : nullptr);
  }
};

std::string Draw(const Readings& readings, TopOrder order, const Screen& screen,
                 const Style& style) {
  if (!readings.failure.ok()) {
    return DrawWaiting(std::string(readings.failure.message()), screen, style);
  }
  return DrawTop(*readings.now, readings.before.has_value() ? &*readings.before : nullptr, order,
                 screen, style, &readings.history);
}

absl::StatusOr<int> Live(const Context& context, const TopOptions& options, const Style& style) {
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<Terminal> terminal, Terminal::Open());
  TopOrder order = options.order;
  Readings readings;
  absl::Time due = absl::InfinitePast();
  while (true) {
    if (base::MonotonicNow() >= due) {
      readings.Add(Read(context));
      if (!readings.now.has_value()) return readings.failure;
      due = base::MonotonicNow() + options.interval;
    }
    Screen screen = terminal->Size();
    screen.keys = kKeys;
    terminal->Show(Draw(readings, order, screen, style));
    const char key =
        terminal->WaitForKey(std::max(due - base::MonotonicNow(), absl::ZeroDuration()));
    if (key == Terminal::kQuitKey) return base::kExitOk;
    if (key == 's') order = TopOrder::kStall;
    if (key == 'b') order = TopOrder::kBytes;
  }
}

}  // namespace

absl::StatusOr<int> RunTop(const Context& context, const TopOptions& options) {
  Style style = context.style;
  style.unicode = style.unicode && !options.ascii;
  if (context.interactive && !options.once && !context.json) return Live(context, options, style);
  GEMINID_ASSIGN_OR_RETURN(const Reading reading, Read(context));
  Context with_style = context;
  with_style.style = style;
  return Once(with_style, reading, options.order);
}

}  // namespace geminid::ctl
