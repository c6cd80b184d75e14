#include "client/disk/striped_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/deadline.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "client/disk/disk_errors.h"
#include "proto/shm/crc32c.h"

namespace geminid::disk {
namespace {

constexpr char kMagic[8] = {'G', 'M', 'S', 'T', 'A', 'T', 'E', '1'};
constexpr size_t kMostLeftoversNamed = 3;
constexpr mode_t kOwnerAlone = 0600;
constexpr absl::Duration kBetweenTries = absl::Milliseconds(10);

// The beginning of each file.
struct FileHeader {
  char magic[8];
  uint64_t identity;
  uint64_t bytes;  // of all files together, without headers
  uint64_t stripe_bytes;
  uint32_t file;
  uint32_t files;
  uint32_t reserved;
  uint32_t crc32c;  // of all fields before it
};
static_assert(sizeof(FileHeader) == 48);

FileHeader MakeHeader(uint64_t identity, const StripedFilesSpec& spec, uint32_t file) {
  FileHeader header = {.magic = {},
                       .identity = identity,
                       .bytes = spec.bytes,
                       .stripe_bytes = kStripeBytes,
                       .file = file,
                       .files = static_cast<uint32_t>(spec.folders.size()),
                       .reserved = 0,
                       .crc32c = 0};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.crc32c = shm::Crc32c(&header, offsetof(FileHeader, crc32c), 0);
  return header;
}

// The file's header; nullopt: there is none.
std::optional<FileHeader> ReadHeader(int fd) {
  FileHeader header = {};
  const ssize_t got = base::RetryOnEintr([&] { return ::pread(fd, &header, sizeof(header), 0); });
  const bool whole = got == sizeof(header) &&
                     std::memcmp(header.magic, kMagic, sizeof(kMagic)) == 0 &&
                     header.crc32c == shm::Crc32c(&header, offsetof(FileHeader, crc32c), 0);
  return whole ? std::optional(header) : std::nullopt;
}

// Returns an errno, or 0.
int WriteHeader(const FileHeader& header, int fd) {
  const ssize_t written =
      base::RetryOnEintr([&] { return ::pwrite(fd, &header, sizeof(header), 0); });
  if (written == sizeof(header) && ::fdatasync(fd) == 0) return 0;
  return written < 0 || written == sizeof(header) ? errno : EIO;
}

uint64_t RandomIdentity() {
  uint64_t identity = 0;
  while (identity == 0) {
    if (::getrandom(&identity, sizeof(identity), 0) != sizeof(identity)) identity = 0;
  }
  return identity;
}

enum class Lock { kGot, kTaken, kUnknown };  // kUnknown: the file system has no locks

// The lock belongs to the open file description: it ends with the last descriptor, after the last
// read and write in progress. A forked child closes its descriptor (ForkGuard).
Lock LockFile(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (base::RetryOnEintr([&] { return ::fcntl(fd, F_OFD_SETLK, &lock); }) == 0) return Lock::kGot;
  return errno == EACCES || errno == EAGAIN ? Lock::kTaken : Lock::kUnknown;
}

// Whether the file is certainly not locked.
bool IsFree(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

absl::Status InUse(const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat(path,
                   " is in use by another process: a rank of the same job and run is alive, or the "
                   "disk has not completed the requests of a killed rank; end that rank, look at "
                   "the disk (dmesg), or name another "
                   "folder"));
}

// UNAVAILABLE while another process has the file. Without locks nobody can know when the disk has
// finished the requests of a killed process.
absl::Status TakeFile(int fd, const std::string& path, absl::Duration patience) {
  const auto deadline = base::Deadline::In(patience);
  Lock lock = LockFile(fd);
  for (; lock == Lock::kTaken && !deadline.Passed(); lock = LockFile(fd)) {
    absl::SleepFor(kBetweenTries);
  }
  if (lock == Lock::kGot) return absl::OkStatus();
  if (lock == Lock::kTaken) return InUse(path);
  return absl::FailedPreconditionError(
      absl::StrCat(path,
                   ": this file system has no file locks, so a restarted rank cannot go on from "
                   "the files; name a folder on another file system, or train without restarts"));
}

bool IsStillAt(int fd, const std::string& path) {
  struct stat here = {};
  struct stat there = {};
  return ::fstat(fd, &here) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

base::UniqueFd OpenExisting(const std::string& path) {
  return base::UniqueFd(base::RetryOnEintr(
      [&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); }));
}

// Removes a file of this name that no process has, since its run did not resume from it. A file
// that geminid did not create stays.
absl::Status RemoveLeftover(const std::string& path, absl::Duration patience) {
  const base::UniqueFd fd = OpenExisting(path);
  if (!fd.valid() && errno == ENOENT) return absl::OkStatus();
  if (!fd.valid()) return base::SystemError(errno, "open", path);
  GEMINID_RETURN_IF_ERROR(TakeFile(fd.get(), path, patience));
  struct stat found = {};
  if (::fstat(fd.get(), &found) != 0) return base::SystemError(errno, "fstat", path);
  if (!S_ISREG(found.st_mode) || (found.st_size > 0 && !ReadHeader(fd.get()).has_value())) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " exists, and geminid did not create it; move it, or name another folder"));
  }
  if (IsStillAt(fd.get(), path) && ::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return base::SystemError(errno, "unlink", path);
  }
  return absl::OkStatus();
}

absl::StatusOr<base::UniqueFd> CreateNamed(const std::string& path, absl::Duration patience) {
  GEMINID_RETURN_IF_ERROR(RemoveLeftover(path, patience));
  base::UniqueFd fd(base::RetryOnEintr([&] {
    return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kOwnerAlone);
  }));
  if (!fd.valid() && errno == EEXIST) return InUse(path);
  if (!fd.valid()) return base::SystemError(errno, "creating a file", path);
  // Another process may have taken the file for a leftover in between.
  GEMINID_RETURN_IF_ERROR(TakeFile(fd.get(), path, absl::ZeroDuration()));
  if (!IsStillAt(fd.get(), path)) return InUse(path);
  return fd;
}

absl::StatusOr<base::UniqueFd> CreateUnnamed(const std::string& folder) {
  base::UniqueFd fd(base::RetryOnEintr(
      [&] { return ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kOwnerAlone); }));
  if (fd.valid()) return fd;
  // Network file systems have no files without names.
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
    return base::SystemError(errno, "creating a file", folder);
  }
  std::string name = absl::StrCat(folder, "/geminid-XXXXXX");
  fd = base::UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd.valid()) return base::SystemError(errno, "creating a file", folder);
  if (::unlink(name.c_str()) != 0) return base::SystemError(errno, "unlink", name);
  return fd;
}

std::string NameOfSystem(int fd) {
  struct statfs system = {};
  if (::fstatfs(fd, &system) != 0) return "";
  constexpr std::array kKnown = {std::pair{0x01021994L, "tmpfs, which is memory"},
                                 std::pair{0x858458f6L, "ramfs, which is memory"},
                                 std::pair{0x6969L, "NFS"},
                                 std::pair{0xff534d42L, "CIFS"},
                                 std::pair{0xfe534d42L, "SMB"},
                                 std::pair{0x0bd00bd0L, "Lustre"},
                                 std::pair{0x00c36400L, "Ceph"},
                                 std::pair{0x65735546L, "FUSE"}};
  const auto type = static_cast<int64_t>(system.f_type) & 0xffffffffL;
  for (const auto& [number, name] : kKnown) {
    if (type == number) return name;
  }
  return "";
}

// Lists files of dead runs in the folder, for messages; "" if there are none.
std::string DescribeLeftovers(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kNamePrefix) || !name.ends_with(kNameSuffix)) continue;
    const base::UniqueFd fd = OpenExisting(entry->path().string());
    struct stat file = {};
    if (!fd.valid() || !IsFree(fd.get()) || ::fstat(fd.get(), &file) != 0) continue;
    found.push_back(
        absl::StrCat(name, " (", base::FormatBytes(static_cast<uint64_t>(file.st_size)), ")"));
    if (found.size() == kMostLeftoversNamed) break;
  }
  if (found.empty()) return "";
  return absl::StrCat("; no process uses ", absl::StrJoin(found, ", "),
                      " there: delete the files of runs that will not go on");
}

absl::Status NoRoom(int error, int fd, const std::string& folder, uint64_t bytes) {
  struct statvfs system = {};
  const uint64_t free = ::fstatvfs(fd, &system) == 0 ? system.f_bavail * system.f_frsize : 0;
  return absl::ResourceExhaustedError(
      absl::StrCat(folder, ": a file of ", base::FormatBytes(bytes), " does not fit (",
                   std::generic_category().message(error), "), ", base::FormatBytes(free),
                   " are free; make room, or name more disks", DescribeLeftovers(folder)));
}

// False: the file has its size but not its space, because the file system cannot reserve it.
absl::StatusOr<bool> Reserve(int fd, const std::string& path, const std::string& folder,
                             uint64_t bytes) {
  const auto size = static_cast<off_t>(bytes);
  if (base::RetryOnEintr([&] { return ::fallocate(fd, 0, 0, size); }) == 0) return true;
  if (errno == ENOSPC || errno == EDQUOT) return NoRoom(errno, fd, folder, bytes);
  if (errno != EOPNOTSUPP && errno != ENOSYS) {
    return DiskError(errno, {.call = "reserve", .path = path, .bytes = bytes});
  }
  if (::ftruncate(fd, size) != 0) {
    return DiskError(errno, {.call = "reserve", .path = path, .bytes = bytes});
  }
  return false;
}

// False also if the file system accepts O_DIRECT but still uses the page cache, like ext4 with
// data=journal. True if the kernel does not say.
bool IsDirectIoReal(int fd) {
#ifdef STATX_DIOALIGN
  struct statx found = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) != 0) return true;
  if ((found.stx_mask & STATX_DIOALIGN) == 0) return true;
  return found.stx_dio_offset_align > 0 && found.stx_dio_offset_align <= kBlockBytes &&
         found.stx_dio_mem_align <= kBlockBytes;
#else
  return fd >= 0;
#endif
}

// Not all file systems can; some fail only when a block is read. The header must be there.
bool LeavePageCacheOut(int fd) {
  if (!IsDirectIoReal(fd)) return false;
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) return false;
  alignas(kBlockBytes) std::array<std::byte, kBlockBytes> block;
  const ssize_t got =
      base::RetryOnEintr([&] { return ::pread(fd, block.data(), block.size(), 0); });
  if (got >= 0 || errno != EINVAL) return true;
  ::fcntl(fd, F_SETFL, flags);
  return false;
}

absl::StatusOr<std::string> AbsolutePath(const std::string& folder) {
  char path[PATH_MAX];
  if (::realpath(folder.c_str(), path) == nullptr) {
    return base::SystemError(errno, "realpath", folder);
  }
  return std::string(path);
}

}  // namespace

std::string NameOfFiles(const std::string& rank) {
  return absl::StrCat(kNamePrefix, rank, kNameSuffix);
}

std::vector<std::string> PathsOfFiles(const std::vector<std::string>& folders,
                                      const std::string& rank) {
  std::vector<std::string> paths;
  for (const std::string& folder : folders) {
    paths.push_back(absl::StrCat(folder, "/", NameOfFiles(rank)));
  }
  return paths;
}

void RemoveFiles(const std::vector<std::string>& paths, std::optional<uint64_t> identity) {
  for (const std::string& path : paths) {
    const base::UniqueFd fd = OpenExisting(path);
    if (!fd.valid()) continue;
    const std::optional<FileHeader> header = ReadHeader(fd.get());
    if (!header.has_value()) continue;
    if (!identity.has_value() || header->identity == *identity) ::unlink(path.c_str());
  }
}

absl::Status CheckFolders(const std::vector<std::string>& folders) {
  if (folders.empty() || folders.size() > kMaxDisks) {
    return absl::InvalidArgumentError(
        absl::StrCat(folders.size(), " folders for state on disk; name 1 to ", kMaxDisks));
  }
  std::set<std::pair<dev_t, ino_t>> known;
  for (const std::string& folder : folders) {
    struct stat found = {};
    if (::stat(folder.c_str(), &found) != 0) {
      const int error = errno;
      if (error != ENOENT) return base::SystemError(error, "stat", folder);
      return absl::NotFoundError(
          absl::StrCat(folder, ": there is no such folder; make it, or name another"));
    }
    if (!S_ISDIR(found.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, " is not a folder; name one on a disk"));
    }
    if (!known.insert({found.st_dev, found.st_ino}).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, " is named twice; name one folder on each disk"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StripedFiles> StripedFiles::Create(const StripedFilesSpec& spec) {
  GEMINID_RETURN_IF_ERROR(CheckFolders(spec.folders));
  StripedFiles made;
  made.has_name_ = !spec.name.empty();
  made.stripes_ = {.files = static_cast<uint32_t>(spec.folders.size()),
                   .stripe_bytes = kStripeBytes};
  made.file_bytes_ = spec.folders.size() * BytesOfFile(made.stripes_, spec.bytes);
  if (spec.limit_bytes > 0 && made.file_bytes_ > spec.limit_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the state needs ", base::FormatBytes(made.file_bytes_), " of disk, and the limit is ",
        base::FormatBytes(spec.limit_bytes), "; raise it, or use more ranks"));
  }
  made.identity_ = RandomIdentity();
  absl::Cleanup remove = [&] { made.Remove(); };
  for (uint32_t file = 0; file < spec.folders.size(); ++file) {
    GEMINID_RETURN_IF_ERROR(made.Make(spec, file));
  }
  std::move(remove).Cancel();
  return made;
}

absl::Status StripedFiles::Make(const StripedFilesSpec& spec, uint32_t file) {
  GEMINID_ASSIGN_OR_RETURN(const std::string folder, AbsolutePath(spec.folders[file]));
  File made;
  made.path = has_name_ ? absl::StrCat(folder, "/", spec.name) : folder;
  GEMINID_ASSIGN_OR_RETURN(
      made.fd, has_name_ ? CreateNamed(made.path, spec.patience) : CreateUnnamed(folder));
  const int fd = made.fd.get();
  const std::string path = made.path;
  made.guard = std::make_unique<ForkGuard>(fd);
  made.system = NameOfSystem(fd);
  files_.push_back(std::move(made));  // from here on Remove finds the file
  File& kept = files_.back();
  const uint64_t bytes = BytesOfFile(stripes_, spec.bytes);
  GEMINID_RETURN_IF_ERROR(base::CheckFileLimit(path, bytes));
  // First the header: if the process ends before the rest, the file is recognized as a leftover.
  const int error = WriteHeader(MakeHeader(identity_, spec, file), fd);
  if (error == ENOSPC || error == EDQUOT) return NoRoom(error, fd, folder, bytes);
  if (error != 0) {
    return DiskError(error, {.call = "write", .path = path, .bytes = sizeof(FileHeader)});
  }
  GEMINID_ASSIGN_OR_RETURN(kept.reserved, Reserve(fd, path, folder, bytes));
  kept.direct = spec.direct && LeavePageCacheOut(fd);
  return absl::OkStatus();
}

absl::StatusOr<StripedFiles> StripedFiles::Open(const StripedFilesSpec& spec, uint64_t identity) {
  GEMINID_RETURN_IF_ERROR(CheckFolders(spec.folders));
  StripedFiles opened;
  opened.has_name_ = true;
  opened.identity_ = identity;
  opened.stripes_ = {.files = static_cast<uint32_t>(spec.folders.size()),
                     .stripe_bytes = kStripeBytes};
  opened.file_bytes_ = spec.folders.size() * BytesOfFile(opened.stripes_, spec.bytes);
  for (uint32_t file = 0; file < spec.folders.size(); ++file) {
    GEMINID_RETURN_IF_ERROR(opened.OpenOne(spec, file));
  }
  return opened;
}

absl::Status StripedFiles::OpenOne(const StripedFilesSpec& spec, uint32_t file) {
  GEMINID_ASSIGN_OR_RETURN(const std::string folder, AbsolutePath(spec.folders[file]));
  File found;
  found.path = absl::StrCat(folder, "/", spec.name);
  found.fd = OpenExisting(found.path);
  if (!found.fd.valid()) return base::SystemError(errno, "open", found.path);
  GEMINID_RETURN_IF_ERROR(TakeFile(found.fd.get(), found.path, spec.patience));
  const std::optional<FileHeader> header = ReadHeader(found.fd.get());
  const FileHeader expected = MakeHeader(identity_, spec, file);
  if (!header.has_value() || std::memcmp(&*header, &expected, sizeof(expected)) != 0) {
    return absl::DataLossError(
        absl::StrCat(found.path, " is not the file that this run's state was written to"));
  }
  struct stat size = {};
  if (::fstat(found.fd.get(), &size) != 0) return base::SystemError(errno, "fstat", found.path);
  const uint64_t needed = BytesOfFile(stripes_, spec.bytes);
  GEMINID_RETURN_IF_ERROR(base::CheckFileLimit(found.path, needed));
  if (static_cast<uint64_t>(size.st_size) < needed) {
    return absl::DataLossError(
        absl::StrCat(found.path, " was truncated: it has ", size.st_size, " bytes of ", needed));
  }
  // With O_NONBLOCK io_uring would not wait on file systems whose reads may block, such as NFS.
  if (::fcntl(found.fd.get(), F_SETFL, 0) != 0)
    return base::SystemError(errno, "fcntl", found.path);
  found.guard = std::make_unique<ForkGuard>(found.fd.get());
  found.direct = spec.direct && LeavePageCacheOut(found.fd.get());
  found.system = NameOfSystem(found.fd.get());
  files_.push_back(std::move(found));
  return absl::OkStatus();
}

std::vector<std::string> StripedFiles::names() const {
  std::vector<std::string> names;
  for (const File& file : files_) {
    if (has_name_) names.push_back(file.path);
  }
  return names;
}

std::string StripedFiles::how() const {
  const bool direct = std::ranges::all_of(files_, &File::direct);
  std::string how = absl::StrCat(files_.size(), files_.size() == 1 ? " disk" : " disks",
                                 direct ? ", without the page cache" : "");
  for (const File& file : files_) {
    if (!file.direct) absl::StrAppend(&how, "; ", file.path, " goes through the page cache");
    if (!file.reserved) absl::StrAppend(&how, "; ", file.path, " has not reserved its space");
    if (!file.system.empty()) absl::StrAppend(&how, "; ", file.path, " is on ", file.system);
  }
  return how;
}

void StripedFiles::Remove() const {
  if (!has_name_) return;
  for (const File& file : files_) {
    if (IsStillAt(file.fd.get(), file.path)) ::unlink(file.path.c_str());
  }
}

}  // namespace geminid::disk
