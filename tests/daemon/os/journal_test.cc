#include "daemon/os/journal.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "tests/base/temporary_folder.h"

namespace geminid::os {
namespace {

using Result = Journal::Result;

TEST(JournalFieldName, Key_IsWhatTheJournalTakes) {
  EXPECT_EQ(JournalFieldName("session"), "GEMINID_SESSION");
  EXPECT_EQ(JournalFieldName("lost-sessions.2"), "GEMINID_LOST_SESSIONS_2");
  EXPECT_EQ(JournalFieldName(std::string(200, 'x')).size(), 64u);
}

TEST(JournalEntry, Fields_AreLines) {
  EXPECT_EQ(JournalEntry({{"MESSAGE", "a = b"}, {"PRIORITY", "6"}}), "MESSAGE=a = b\nPRIORITY=6\n");
}

TEST(JournalEntry, ValueWithANewline_CannotForgeAField) {
  const std::string value = "x\nPRIORITY=0";
  std::string length(8, '\0');
  length[0] = static_cast<char>(value.size());
  EXPECT_EQ(JournalEntry({{"GEMINID_JOB", value}}), "GEMINID_JOB\n" + length + value + "\n");
}

TEST(JournalEntry, LongValue_IsCut) {
  EXPECT_EQ(JournalEntry({{"A", std::string(kMostJournalValueBytes + 9, 'v')}}).size(),
            kMostJournalValueBytes + std::strlen("A=\n"));
}

// To its clients the journal is a datagram socket with a reader.
class FakeJournal : public ::testing::Test {
 protected:
  void SetUp() override {
    reader_ = base::UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path_.c_str());
    ASSERT_EQ(::bind(reader_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
  }

  const base::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/socket";
  base::UniqueFd reader_;
};

TEST_F(FakeJournal, Entry_Arrives) {
  const Journal journal(path_);
  EXPECT_EQ(journal.Send("MESSAGE=hello\n"), Result::kSent);
  char buffer[64] = {};
  ASSERT_EQ(::recv(reader_.get(), buffer, sizeof(buffer), 0), 14);
  EXPECT_STREQ(buffer, "MESSAGE=hello\n");
}

TEST_F(FakeJournal, ThatDoesNotRead_IsFullAndNotWaitedFor) {
  const Journal journal(path_);
  Result result = Result::kSent;
  for (int i = 0; i < 100'000 && result == Result::kSent; ++i) result = journal.Send("MESSAGE=x\n");
  EXPECT_EQ(result, Result::kFull);
}

TEST_F(FakeJournal, ThatHasEnded_IsGone) {
  const Journal journal(path_);
  reader_ = base::UniqueFd();
  EXPECT_EQ(journal.Send("MESSAGE=x\n"), Result::kGone);
  EXPECT_EQ(Journal(folder_.path() + "/none").Send("MESSAGE=x\n"), Result::kGone);
}

}  // namespace
}  // namespace geminid::os
