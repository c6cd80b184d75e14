#include "tools/geminictl/commands/bundle.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <functional>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/files.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "base/unique_fd.h"
#include "daemon/config/settings.h"
#include "daemon/os/unix_socket.h"
#include "tools/geminictl/commands/config_show.h"
#include "tools/geminictl/commands/jobs.h"
#include "tools/geminictl/commands/list.h"
#include "tools/geminictl/commands/status.h"
#include "tools/geminictl/commands/version.h"
#include "tools/geminictl/doctor/doctor.h"
#include "tools/geminictl/output/archive.h"

namespace geminid::ctl {
namespace {

constexpr char kFolder[] = "geminid-bundle/";
constexpr char kSuffix[] = ".tar.gz";
constexpr size_t kMostLogBytes = size_t{4} << 20;
constexpr size_t kMostLogFileBytes = size_t{1} << 30;
constexpr size_t kMostPageBytes = size_t{64} << 20;
constexpr const char* kKernelFiles[] = {"/proc/version",     "/proc/meminfo",
                                        "/proc/self/limits", "/proc/self/cgroup",
                                        "/etc/os-release",   "/proc/filesystems"};
constexpr const char* kPages[] = {"/metrics", "/livez", "/readyz", "/healthz"};

// The files and errors collected so far.
struct Bundle {
  std::vector<ArchivedFile> files;
  std::string errors;

  void Add(const std::string& name, std::string text) {
    files.push_back({absl::StrCat(kFolder, name), std::move(text)});
  }
  void Note(const std::string& name, const std::string& error) {
    absl::StrAppend(&errors, name, ": ", error, "\n");
  }
};

// Adds a subcommand's output with --json.
void AddOutput(const Context& context, const std::string& name,
               const std::function<absl::StatusOr<int>(const Context&)>& run, Bundle* bundle) {
  std::ostringstream out, err;
  Context inner = context;
  inner.out = &out;
  inner.err = &err;
  inner.json = true;
  inner.interactive = false;
  const absl::StatusOr<int> code = run(inner);
  if (!code.ok()) bundle->Note(name, std::string(code.status().message()));
  if (!err.str().empty()) bundle->Note(name, err.str());
  if (!out.str().empty()) bundle->Add(name, out.str());
}

absl::StatusOr<std::string> ReadToEnd(const base::UniqueFd& connection, const std::string& name) {
  std::string answer;
  char buffer[1 << 16];
  while (answer.size() < kMostPageBytes) {
    const ssize_t got =
        base::RetryOnEintr([&] { return ::recv(connection.get(), buffer, sizeof(buffer), 0); });
    if (got < 0) return base::SystemError(errno, "recv", name);
    if (got == 0) return answer;
    answer.append(buffer, static_cast<size_t>(got));
  }
  return absl::ResourceExhaustedError(absl::StrCat(name, ": too long"));
}

// Gets a page of the daemon with its HTTP header, which has the result of a probe.
absl::StatusOr<std::string> Fetch(const std::string& socket, const std::string& page,
                                  absl::Duration timeout) {
  GEMINID_ASSIGN_OR_RETURN(const base::UniqueFd connection, os::ConnectUnix(SOCK_STREAM, socket));
  const timeval patience = absl::ToTimeval(timeout);
  ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  const std::string request = absl::StrCat("GET ", page, " HTTP/1.1\r\n\r\n");
  const ssize_t sent = base::RetryOnEintr(
      [&] { return ::send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL); });
  if (sent != static_cast<ssize_t>(request.size())) {
    return base::SystemError(errno, "send", socket);
  }
  return ReadToEnd(connection, socket);
}

void AddDaemon(const Context& context, Bundle* bundle) {
  AddOutput(context, "status.json", RunStatus, bundle);
  AddOutput(context, "sessions.json", RunListSessions, bundle);
  AddOutput(context, "jobs.json", RunListJobs, bundle);
  AddOutput(context, "pools.json", RunListPools, bundle);
  AddOutput(
      context, "config.json", [](const Context& inner) { return RunConfigShow(inner, true); },
      bundle);
  const std::string socket = absl::StrCat(context.socket, config::kHttpSuffix);
  for (const std::string page : kPages) {
    absl::StatusOr<std::string> answer = Fetch(socket, page, context.timeout);
    if (answer.ok()) {
      bundle->Add(absl::StrCat("http", page, ".txt"), *std::move(answer));
    } else {
      bundle->Note(page, std::string(answer.status().message()));
    }
  }
}

absl::Status AddLog(const std::string& path, Bundle* bundle) {
  GEMINID_ASSIGN_OR_RETURN(std::string text, base::ReadFile(path, kMostLogFileBytes));
  if (text.size() > kMostLogBytes) text.erase(0, text.size() - kMostLogBytes);
  bundle->Add("log.txt", std::move(text));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> RunBundle(const Context& context, const BundleOptions& options) {
  const absl::Time now = base::WallClockNow();
  const std::string output =
      options.output.empty()
          ? absl::StrCat("geminid-bundle-",
                         absl::FormatTime("%Y%m%dT%H%M%SZ", now, absl::UTCTimeZone()), kSuffix)
          : options.output;
  if (!absl::EndsWith(output, kSuffix)) {
    return absl::InvalidArgumentError(
        absl::StrCat(base::WithValue("--output", output), "it must end in ", kSuffix));
  }
  Bundle bundle;
  if (!options.log.empty()) {
    GEMINID_RETURN_IF_ERROR(AddLog(options.log, &bundle));
  }
  AddOutput(context, "version.json", RunVersion, &bundle);
  AddOutput(context, "doctor.json", RunDoctor, &bundle);
  AddDaemon(context, &bundle);
  for (const std::string path : kKernelFiles) {
    bundle.Add(absl::StrCat("machine", path, ".txt"), base::ReadKernelFile(path));
  }
  bundle.Add("errors.txt", bundle.errors);
  GEMINID_ASSIGN_OR_RETURN(const std::string archive,
                           TarGz(bundle.files, absl::ToUnixSeconds(now)));
  GEMINID_RETURN_IF_ERROR(base::ReplaceFile(output, archive));
  *context.err << "wrote " << output << "; it has names of jobs, tenants and files, no tokens and "
               << "nothing of what lies in memory: look at it before you send it\n";
  if (!bundle.errors.empty())
    *context.err << "some parts could not be collected:\n" << bundle.errors;
  return base::kExitOk;
}

}  // namespace geminid::ctl
