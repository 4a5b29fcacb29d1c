"""Core data types: shapes, trials, records, points, estimates, limits, verdicts, decisions. All
frozen; no I/O.

Times are in seconds, sizes in bytes, shares 0..1. A missing value is None, never 0; the latency of
a failed request is +inf.
"""

from frontier.model.decisions import Cause as Cause
from frontier.model.decisions import Claim as Claim
from frontier.model.decisions import Cut as Cut
from frontier.model.decisions import Decision as Decision
from frontier.model.decisions import Explanation as Explanation
from frontier.model.decisions import Judgement as Judgement
from frontier.model.decisions import Limit as Limit
from frontier.model.decisions import NextStep as NextStep
from frontier.model.decisions import Reason as Reason
from frontier.model.decisions import RejectedStep as RejectedStep
from frontier.model.decisions import Verdict as Verdict
from frontier.model.decisions import worst as worst
from frontier.model.loads import POISSON as POISSON
from frontier.model.loads import Arrivals as Arrivals
from frontier.model.loads import Rate as Rate
from frontier.model.loads import SessionRate as SessionRate
from frontier.model.loads import Trace as Trace
from frontier.model.loads import amount as amount
from frontier.model.loads import bare as bare
from frontier.model.loads import in_words as in_words
from frontier.model.loads import kind_of as kind_of
from frontier.model.loads import listed as listed
from frontier.model.loads import load_columns as load_columns
from frontier.model.loads import load_facts as load_facts
from frontier.model.loads import load_of as load_of
from frontier.model.loads import setting as setting
from frontier.model.loads import streams as streams
from frontier.model.points import OVERLOADED as OVERLOADED
from frontier.model.points import Distance as Distance
from frontier.model.points import Estimate as Estimate
from frontier.model.points import Flag as Flag
from frontier.model.points import Frontier as Frontier
from frontier.model.points import Point as Point
from frontier.model.points import Power as Power
from frontier.model.points import TimeBreakdown as TimeBreakdown
from frontier.model.session_table import SessionFile as SessionFile
from frontier.model.session_table import SessionTable as SessionTable
from frontier.model.session_table import SessionTurn as SessionTurn
from frontier.model.shapes import DEFAULT_DEPLOYMENT as DEFAULT_DEPLOYMENT
from frontier.model.shapes import FIRST as FIRST
from frontier.model.shapes import LATER as LATER
from frontier.model.shapes import MAX_TOKENS as MAX_TOKENS
from frontier.model.shapes import Lengths as Lengths
from frontier.model.shapes import OfSeries as OfSeries
from frontier.model.shapes import Series as Series
from frontier.model.shapes import Session as Session
from frontier.model.shapes import Shape as Shape
from frontier.model.shapes import ShapeError as ShapeError
from frontier.model.shapes import TrafficClass as TrafficClass
from frontier.model.shapes import by_series as by_series
from frontier.model.shapes import file_label as file_label
from frontier.model.shapes import unnamed as unnamed
from frontier.model.trials import FINISHED as FINISHED
from frontier.model.trials import Answer as Answer
from frontier.model.trials import Answers as Answers
from frontier.model.trials import ClientHealth as ClientHealth
from frontier.model.trials import Measurement as Measurement
from frontier.model.trials import MetricSeries as MetricSeries
from frontier.model.trials import Outcome as Outcome
from frontier.model.trials import Phase as Phase
from frontier.model.trials import Record as Record
from frontier.model.trials import SourceReadings as SourceReadings
from frontier.model.trials import Trial as Trial
from frontier.model.trials import Window as Window
from frontier.model.trials import WorkerFacts as WorkerFacts
