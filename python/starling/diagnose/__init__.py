"""Who holds a job up: read from the flight records that ranks leave, during a hang and after a crash.

``starling diagnose`` on the command line; ``diagnose()`` here.
"""

from starling.diagnose.api import diagnose
from starling.diagnose.finding import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "diagnose"]
