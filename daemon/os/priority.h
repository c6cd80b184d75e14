// Which threads go first when processors are scarce.
#ifndef GEMINID_DAEMON_OS_PRIORITY_H_
#define GEMINID_DAEMON_OS_PRIORITY_H_

namespace geminid::os {

// A thread that gives way gets about a tenth of what others get, if they want the whole processor,
// and all of an idle processor.
inline constexpr int kNicerBy = 10;

// From now on the calling thread, and those that it starts, give way to threads of the usual
// priority: those of trainers, and the one that serves their transfers. Its time slices are short,
// so that it does not wait long either (Linux 6.12 and newer; older kernels ignore that). If the
// system refuses, all stays as it was. A second call changes nothing further.
void GiveWay();

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_PRIORITY_H_
