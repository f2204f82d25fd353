local as_text = use 'redis/as-text'

-- Decides whether a refusal concerns the destination, and so the whole fleet, or only one job or one target (such as a
-- path) that keeps being refused while others succeed. Answers that name a time, rules and feedback from user code
-- apply directly; all others need evidence.
--
-- The evidence is a sum (CUSUM, Page 1954: "Continuous inspection schemes"): a refusal adds WEIGHT, a successful call
-- subtracts 1. It rises if more than one call in 41 is refused, and at ENOUGH the destination is at fault. If nothing
-- succeeded lately two jobs are enough, and one if the destination could not be reached at all.
--   doc.doubt   score; jobs: how many were refused; since: when it began (ms); at: when it was last added to (ms).
--               During a doubt, workers report successful calls
--   doc.suspicion   pauses of the last minute to find the cause: since (ms), count; running: jobs at the last one,
--               until a call succeeds
--   doc.well    the last known successful call: at (its departure, ms), ended (ms)
local evidence = {
  WEIGHT = 40, ENOUGH = 200,
  -- Beyond the wall (feedback/pacing), the rate is a likely cause.
  ENOUGH_BEYOND = 120,
  -- A success that ended this long ago (ms) says nothing about now. Without a connection, a far shorter time suffices.
  RECENT_MS = 10000, CONNECTED_MS = 1000,
  -- A doubt without additions for this long (ms) is over.
  DOUBT_MS = 600000,
  -- A window limit looks like a run of bad jobs: this often per minute (ms) the destination gets the benefit of the
  -- doubt.
  SUSPICIONS = 3, SUSPICION_MS = 60000,
  MAX_TARGETS = 500, TARGETS_MS = 60000,
  -- After this many consecutive refusals while others succeeded, a named time applies to the job only.
  OWN = 1,
  -- After more than this many, each refusal uses up an attempt: without a named time, and with one, which is waited
  -- for.
  MAX_ALONE = 2, MAX_ALONE_NAMED = 10,
}

function evidence.latest(known, ms)
  return ms and math.max(known or 0, ms) or known
end

-- r.well_before: departure of the last successful call known before this report
function evidence.note_well(r)
  local known = r.doc.well or {}
  r.well_before = known.at or 0
  if not r.ok_at then return end
  r.doc.well = {
    at = evidence.latest(known.at, r.ok_at),
    -- A time in the future comes from a clock that has gone back since.
    ended = evidence.latest(known.ended and math.min(known.ended, r.now_ms), r.ok_ago and r.now_ms - r.ok_ago),
  }
end

-- r.oks: successful calls since the worker's last report; r.ok_at: departure of its last one (ms), r.ok_ago: ms since
-- that ended, or nil
function evidence.went_well(r)
  local doubt, pace = r.doc.doubt, r.doc.pace
  if r.job and pace then pace.oks = pace.oks + r.oks end
  evidence.note_well(r)
  if not doubt then return end
  doubt.score = doubt.score - r.oks
  if doubt.score > 0 and r.now_ms - doubt.at < evidence.DOUBT_MS then return end
  r.doc.doubt, r.news = nil, true
end

-- A probe from behind the head succeeded, as the first call since the doubt began: the refusals concerned the jobs at
-- the head, or are over.
function evidence.contradict(r)
  local doubt = r.doc.doubt
  if doubt and r.well_before < doubt.since then r.doc.doubt, r.news = nil, true end
end

-- Whether the finding comes from user code or a rule.
function evidence.is_own_word(f)
  return f.source == 'user' or f.source == 'rule'
end

-- Whether a finding itself names a time, rate or limit, and so needs no evidence.
function evidence.is_named(f)
  if evidence.is_own_word(f) then return true end
  if f.kind == 'pause' then return f.forMs and f.forMs >= 1 end
  if f.kind == 'slow' then return f.rate ~= nil end
  return f.kind ~= 'concurrency' or f.limit ~= nil
end

-- Whether only this target keeps being refused: since the refusals began, others succeeded and it did not.
function evidence.of_target(r)
  local target = r.job.target
  if not target then return false end
  local key = r.base .. 'meta:refused'
  local first, last = string.match(redis.call('HGET', key, target) or '', '^(%d+) (%d+)$')
  first = tonumber(first)
  local goes_on = first and r.now_ms - tonumber(last) < evidence.TARGETS_MS and (r.job.same or 0) <= first
  if not goes_on then first = r.now_ms end
  if redis.call('HLEN', key) >= evidence.MAX_TARGETS then redis.call('DEL', key) end
  redis.call('HSET', key, target, as_text.us(first) .. ' ' .. as_text.us(r.now_ms))
  redis.call('PEXPIRE', key, evidence.TARGETS_MS)
  return goes_on and (r.job.others or 0) > first
end

-- Whether the destination is only suspected: no call succeeded between the refusals, so the cause may be a run of bad
-- jobs. A probe from behind them decides.
function evidence.suspects(r)
  if r.doc.pauses or (r.doc.well and r.doc.well.at >= r.doc.doubt.since) then return false end
  local s = r.doc.suspicion
  if not s or math.abs(r.now_ms - s.since) > evidence.SUSPICION_MS then s = { since = r.now_ms, count = 0 } end
  s.count, s.running = s.count + 1, redis.call('LLEN', r.base .. 'active')
  r.doc.suspicion = s
  return s.count <= evidence.SUSPICIONS
end

-- The sum at which the destination is at fault.
local function enough(r)
  local pace = r.doc.pace
  return pace and pace.passed and evidence.ENOUGH_BEYOND or evidence.ENOUGH
end

-- Adds a refusal. True if the destination is at fault.
function evidence.add(r, refused_at)
  local doubt = r.doc.doubt
  if not doubt then
    doubt = { score = 0, jobs = 0, since = r.now_ms }
    r.doc.doubt, r.news = doubt, true
  end
  doubt.at = r.now_ms
  if not refused_at or refused_at < doubt.since then doubt.jobs = doubt.jobs + 1 end
  doubt.score = math.min(doubt.score + evidence.WEIGHT, evidence.ENOUGH)
  if doubt.jobs < (r.unreachable and 1 or 2) then return false end
  local recent = r.now_ms - (r.unreachable and evidence.CONNECTED_MS or evidence.RECENT_MS)
  return (r.doc.well and r.doc.well.ended or 0) < recent or doubt.score >= enough(r)
end

-- Returns whether the destination is at fault, and the job's consecutive refusals while others succeeded.
function evidence.weigh(r, at, alone)
  if not r.fresh then return true, alone end
  local doubt, of_target = r.doc.doubt, evidence.of_target(r)
  local others_well = at and r.doc.well and r.doc.well.at > at
  -- If many calls are refused, it is chance which ones succeed.
  if of_target or (others_well and not (doubt and doubt.score >= enough(r))) then return false, alone + 1 end
  local general = evidence.add(r, at)
  r.suspected = general and r.unnamed and evidence.suspects(r)
  return general, 0
end

-- Judges the refusal of r.job:
--   r.general   the destination is at fault; r.suspected: it may be
--   r.alone     the job's consecutive refusals while others succeeded
--   r.count     how often it was throttled, including this time
--   r.given_up  its worker's time for it is over: the job was throttled ever since the first of these calls departed
--   r.unnamed   no finding names an end
function evidence.judge(r, unnamed)
  local key = r.base .. r.job.id
  local stored = redis.call('HMGET', key, 'throttled', 'refused', 'throttledSince')
  local before = tonumber(stored[1]) or 0
  -- The count of a failed job that is retried by hand begins again.
  local at, alone = string.match(before > 0 and stored[2] or '', '^(%d+) (%d+)$')
  local since = before > 0 and tonumber(stored[3]) or math.min(r.now_ms, math.floor(r.sent / 1000))
  r.count, r.unnamed, r.general, r.alone = before + 1, unnamed, true, 0
  r.given_up = r.now_ms - since >= r.job.give_up_ms
  if r.heard then r.general, r.alone = evidence.weigh(r, tonumber(at), tonumber(alone) or 0) end
  -- The refused call used the rate nevertheless.
  if not r.general and r.doc.pace then r.doc.pace.oks = r.doc.pace.oks + 1 end
  redis.call('HSET', key, 'throttled', r.count, 'throttledSince', as_text.us(since), 'refused',
    as_text.us(r.now_ms) .. ' ' .. r.alone)
  if r.job.reason then redis.call('HSET', key, 'throttledFor', r.job.reason) end
end

-- Whether a finding applies to the fleet.
function evidence.acts(r, f)
  if not r.job or evidence.is_own_word(f) or f.kind == 'ok' then return true end
  if evidence.is_named(f) then return not r.judged or r.alone < evidence.OWN end
  return r.judged and r.general and not (r.suspected and f.kind == 'concurrency')
end

-- Whether the job is retried at a time of its own: the fleet is not held for it, or other jobs must go first.
function evidence.is_own(r)
  -- In a series of pauses each probe is a different job.
  local first = r.count == 1 and (r.doc.pauses or 0) <= 1
  if r.unnamed then return not (r.general and first) or r.job.retried or r.job.score ~= '' end
  return r.alone >= evidence.OWN or (r.heard and r.count > 1 and r.job.score ~= '')
end

return evidence
