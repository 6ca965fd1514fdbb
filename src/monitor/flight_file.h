// Where flight records lie (wire/flight.h), how long, and how they get into files.
//
//   /dev/shm/starling-flight.N.K    of the rank whose segment is starling.N.K
//       the rank ends in order, without a fault: removed at once
//       it saw a fault, or died: stays for a day; the newest 256, and at most a sixteenth of /dev/shm
//   STARLING_FLIGHT_DIR/HOST.N.K.flight    a copy, made when a rank sees a fault
#pragma once
#include <string>

#include "wire/flight.h"

namespace starling::monitor {

// Of the record that belongs to the segment of this name.
std::string flight_name(const std::string& arena);

// A record of this process's own: shared, or private memory where /dev/shm has no room for it. Zeroed.
class FlightFile {
 public:
  explicit FlightFile(const std::string& arena);
  ~FlightFile();
  FlightFile(const FlightFile&) = delete;
  FlightFile& operator=(const FlightFile&) = delete;

  FlightRecord* record() const { return record_; }
  // Stays when this object is gone.
  void keep() { kept_ = true; }

 private:
  std::string path_;
  FlightRecord* record_ = nullptr;
  bool shared_ = false;
  bool kept_ = false;
};

// Writes a copy of the record into the folder, which is made if it is not there. Throws Error(system).
void copy_flight(const FlightRecord& record, const std::string& folder);
// The same of a neighbour's, unless there is one of it already: its own is newer than what we know. False:
// it has no record here.
bool copy_neighbours_flight(const std::string& arena, const std::string& folder);

// Removes the records of ranks that are gone, but for the newest.
void remove_old_flights();

}  // namespace starling::monitor
