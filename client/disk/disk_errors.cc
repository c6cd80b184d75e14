#include "client/disk/disk_errors.h"

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "base/system_error.h"

namespace geminid::disk {
namespace {

std::string Describe(const FailedCall& failed) {
  return absl::StrCat(failed.path, ": cannot ", failed.call, " ", base::FormatBytes(failed.bytes),
                      " at byte ", failed.offset);
}

}  // namespace

absl::Status DiskError(int error, const FailedCall& failed) {
  const std::string what =
      absl::StrCat(Describe(failed), " (", std::generic_category().message(error), ")");
  switch (error) {
    case ENOSPC:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, ": the disk is full; free space on it, then start again"));
    case EDQUOT:
      return absl::ResourceExhaustedError(absl::StrCat(
          what, ": a quota of the file system is used up; raise the quota, then start again"));
    case EFBIG:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, ": files may not be so large; raise the limit (ulimit -f)"));
    // Direct I/O reports medium, protection and target errors with these numbers.
    case EIO:
    case ENODATA:
    case EILSEQ:
    case EREMOTEIO:
      return failed.call == "read"
                 ? absl::DataLossError(absl::StrCat(
                       what,
                       ": the disk cannot read it; look at the disk (dmesg, smartctl), and go "
                       "on from a checkpoint"))
                 : absl::InternalError(absl::StrCat(
                       what,
                       ": the disk cannot write it; look at the disk (dmesg, smartctl), or "
                       "name another"));
    case EINVAL:
      return absl::InvalidArgumentError(absl::StrCat(
          what, ": the file system does not take blocks of ", base::kPageBytes, " bytes"));
    default:
      return base::SystemError(error, failed.call,
                               absl::StrCat(failed.path, " at byte ", failed.offset));
  }
}

absl::Status TruncatedError(const FailedCall& failed) {
  return absl::DataLossError(absl::StrCat(Describe(failed),
                                          ": the file ends before that byte; it was truncated "
                                          "while it was in use. Go on from a checkpoint"));
}

}  // namespace geminid::disk
