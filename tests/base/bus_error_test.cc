#include "base/bus_error.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "base/mapping.h"
#include "base/memfd.h"
#include "tests/base/temporary_folder.h"

namespace geminid::base {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::KilledBySignal;
using ::testing::Not;

constexpr size_t kPages = size_t{1} << 16;

// For the child of a death test, which has no handlers of a sanitizer.
void Prepare() {
  const rlimit no_core = {};
  (void)::setrlimit(RLIMIT_CORE, &no_core);
  ::signal(SIGBUS, SIG_DFL);
  ExplainBusErrors("geminid-test");
}

void Touch(const Mapping& mapping) {
  *const_cast<volatile std::byte*>(mapping.data() + kPages / 2) = std::byte{1};
}

TEST(BusError, OfSharedMemoryThatWasTakenBack_NamesItAndEndsByTheSignal) {
  absl::StatusOr<UniqueFd> fd = CreateRevocableMemfd("of-the-test", kPages);
  ASSERT_TRUE(fd.ok()) << fd.status();
  absl::StatusOr<Mapping> mapping =
      Mapping::Map(*fd, kPages, {.inherited = true, .revocable = true});
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  ASSERT_EQ(Revoke(*fd), absl::OkStatus());
  EXPECT_EXIT(
      {
        Prepare();
        Touch(*mapping);
      },
      KilledBySignal(SIGBUS),
      AllOf(ContainsRegex("^geminid-test: SIGBUS: there is no page of memory at address "
                          "0x[0-9a-f]*, in /memfd:of-the-test"),
            HasSubstr("was taken back (geminictl end"), HasSubstr("df -h /dev/shm")));
}

TEST(BusError, OfAFileThatBecameShorter_SaysSo) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("data", std::string(kPages, 'x'));
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  void* const memory = ::mmap(nullptr, kPages, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::ftruncate(fd.get(), 0), 0);
  EXPECT_EXIT(
      {
        Prepare();
        *static_cast<volatile char*>(memory) = 1;
      },
      KilledBySignal(SIGBUS),
      AllOf(HasSubstr("in " + path + ". The file has become shorter"), Not(HasSubstr("/dev/shm"))));
  EXPECT_EQ(::munmap(memory, kPages), 0);
}

TEST(BusError, ThatAProcessHasSent_EndsWithoutWords) {
  EXPECT_EXIT(
      {
        Prepare();
        (void)::kill(::getpid(), SIGBUS);
      },
      KilledBySignal(SIGBUS), IsEmpty());
}

TEST(BusError, OfAProcessWithAHandlerOfItsOwn_IsLeftToIt) {
  EXPECT_EXIT(
      {
        ::signal(SIGBUS, [](int) { ::_exit(3); });
        ExplainBusErrors("geminid-test");
        (void)::kill(::getpid(), SIGBUS);
      },
      ::testing::ExitedWithCode(3), IsEmpty());
}

}  // namespace
}  // namespace geminid::base
