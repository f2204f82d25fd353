local changes = use 'feedback/changes'
local evidence = use 'feedback/evidence'
local feedback = use 'feedback/feedback'
local subjects = use 'feedback/subjects'
local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
local queue_limits = use 'limits/queue-limits'
local bucket = use 'meter/bucket'
local as_text = use 'redis/as-text'
local job_options = use 'shape/job-options'

-- Feedback about a group, or about one value of a limit with `by`, holds that subject (feedback/subjects) and no other.
-- Each subject has its own record like the feedback of a queue's shape (JSON: epoch, pauses, doubt, suspicion and well
-- as in feedback/feedback and feedback/evidence), which expires after some time without reports. With `adapt` its rate
-- falls like the queue's (pace, and for the way back by, reason, source, tier and held, the end of its last pause, ms:
-- groups/pace). A subject without a rate pauses, and there is no probe: after a pause its jobs follow at its rate.
--   r.group        the group of the job, '' if it has none
--   r.keys, r.tier, r.members  those of the job, if a finding is about a limit
--   r.calls        {oks, ok_at, ok_ago} of the subject of the first finding that has one, as those of the request
local group_feedback = {}

-- The limit with `by` of this name, or the pool if the job departed with a member of it, if the shape has one that is
-- enforced.
local function keyed_limit(r, name)
  for _, l in ipairs(r.shape_limits) do
    if l.name == name and (l.by or l.pool and r.members and r.members[name]) then return l end
  end
end

-- The subject of a finding, as text: a group, '' for a job without one, or a limit with `by`; nil for the queue.
local function about(r, f)
  if f.scope == 'group' then return 'group ' .. (r.group or '') end
  if type(f.scope) ~= 'table' then return nil end
  if f.scope.group then return 'group ' .. f.scope.group end
  return keyed_limit(r, f.scope.limit) and 'limit ' .. f.scope.limit or nil
end

-- The subject; nil if it is the job alone: it has no group, or lacks a key, or the queue has no groups, or not that
-- member.
local function subject_of(r, shape, kind, name)
  if kind == 'limit' and r.members and r.members[name] then
    local part = queue_limits.member(shape, r.base, r.now, name, { member = r.members[name] })
    return part and subjects.of_member(r.base, r.now, part)
  end
  if not shape.groups or kind == 'group' and name == '' then return nil end
  local g = r.parts.g or queue_groups.open(r.base, shape, r.now)
  r.parts.g = g
  if kind == 'group' then return subjects.of_group(g, name) end
  local limits, keys = group_limits_of(r.base, shape, r.now), job_options.keys(r.keys, r.tier)
  local own = limits and limits.keys_in(name, { group = r.group or '', keys = keys })
  if not own then return nil end
  local l, value = limits.named(name, own)
  return subjects.of_key(g, limits, l, value, own, keys and keys[':tier'])
end

-- The request as one about a subject, which is judged and changed. first: the part that is judged, if that is another
-- one
local function part_of(r, subject, calls, first)
  local gr = setmetatable({
    subject = subject, changes = first and first.changes or {}, oks = calls.oks, ok_at = calls.ok_at or false,
    ok_ago = calls.ok_ago or false, configured = false, counted = false, refused = false, throttled = false, long_pause = false,
  }, { __index = first or r })
  gr.text = subject and redis.call('GET', subject.doc)
  gr.doc = gr.text and cjson.decode(gr.text) or {}
  gr.epoch = tonumber(gr.doc.epoch) or false
  gr.fresh = feedback.fresh(gr)
  if subject then gr.configured = subject.slows and subject.settings().configured or false end
  return gr
end

-- The parts of a request: the subjects of its findings. The first is judged. Nil if all are about the queue.
function group_feedback.request(r, shape)
  r.parts = {}
  for _, found in ipairs(r.found) do
    local text = about(r, found.feedback)
    if text and not r.parts[text] then
      local kind, name = string.match(text, '^(%a+) (.*)$')
      local own = kind == 'limit' or name == r.group
      local first = r.parts[1]
      local part = part_of(r, subject_of(r, shape, kind, name), own and not first and r.calls or { oks = 0 }, first)
      r.parts[text], r.parts[#r.parts + 1] = part, part
    end
  end
  return r.parts[1]
end

-- The part for the subject of a finding; nil if it is about the queue.
function group_feedback.part(r, f)
  return r.parts[about(r, f) or 0]
end

-- Successful calls for the subject since its last report, which comes with a refusal.
function group_feedback.went_well(gr)
  evidence.went_well(gr)
  if gr.doc.pauses and gr.ok_at and (not gr.epoch or gr.ok_at * 1000 > gr.epoch) then
    gr.doc.pauses, gr.doc.suspicion = nil, nil
  end
end

-- Findings without a subject concern the job alone.
function group_feedback.judged(gr)
  if gr.subject then return end
  gr.general, gr.suspected, gr.alone = false, false, math.max(gr.alone or 0, evidence.OWN)
end

local function group_note(gr, f, change)
  feedback.note(gr, { scope = gr.subject.scope, source = f.source, reason = f.reason }, change)
end

-- Whether the subject's settings already hold it as much until a time. holds(s): whether these settings do
local function group_holds(gr, until_ms, holds)
  local subject = gr.subject
  if not holds(subject.settings()) then return false end
  local entries = subject.entries()
  for _, entry in pairs(entries) do
    local ends = entry['until']
    local sooner = ends and ends > gr.now_ms and ends < until_ms
    if sooner and not holds(subject.settings_at(entries, ends * 1000)) then return false end
  end
  return true
end

-- Sets a hold, unless the current settings hold the subject as much for as long. Returns the hold, which earlier
-- reports may have made stronger or longer; nil if nothing changed.
local function group_change(gr, f, field, value, until_ms, holds)
  if group_holds(gr, until_ms, holds) then return nil end
  return gr.subject.set(field, value, gr.by, f.reason, until_ms)
end

function group_feedback.pause(gr, f, most_ms)
  local ms = feedback.pause_ms(gr, f, most_ms or (f.about and gr.limits.maxDownMs or gr.limits.maxBackoffMs))
  if not ms then return end
  -- As in feedback_pause_queue.
  local ends = math.ceil(gr.now_ms + ms + gr.jitter * math.min(gr.limits.jitterMs, ms / 10))
  local function holds(s) return s.limited ~= nil end
  if not group_change(gr, f, 'limited', true, ends, holds) then return end
  gr.held_until, gr.doc.held = ends * 1000, ends
  if gr.adapt and gr.configured and ms >= gr.limits.slowStartMs then gr.long_pause = f end
  group_note(gr, f, { kind = 'pause', ['until'] = ends })
end

-- Bounds a subject's rate for a while, by the slowest reported rate.
function group_feedback.cap(gr, f, rate, ttl_ms)
  local ends, slow = gr.now_ms + math.ceil(ttl_ms), bucket.interval(rate)
  local function holds(s) return (s.interval or 0) >= slow end
  local entry = group_change(gr, f, 'slowed', rate, ends, holds)
  if not entry then return end
  local text = changes.rate_text(bucket.interval(entry.value))
  group_note(gr, f, { kind = 'slow', rate = text, ['until'] = entry['until'] })
end

function group_feedback.slow(gr, f)
  local interval = gr.subject.settings().interval
  if not gr.subject.slows then
    group_feedback.pause(gr, f, gr.limits.maxSlowPauseMs)
  elseif f.rate then
    group_feedback.cap(gr, f, { f.rate.limit, f.rate.period }, f.ttlMs or gr.limits.slowMs)
  elseif f.ttlMs and interval then
    local slower = math.max(interval, math.min(interval / f.factor, feedback.floor(gr)))
    if gr.fresh then group_feedback.cap(gr, f, { 1, slower / 1000 }, f.ttlMs) end
  elseif gr.suspected or not (gr.adapt and gr.configured) then
    group_feedback.pause(gr, f, gr.limits.maxSlowPauseMs)
  end
end

-- The rate of the subject falls once per epoch, and starts slowly after a long pause, like the queue's.
function group_feedback.adapt(gr)
  local before = gr.doc.pace and gr.doc.pace.interval
  local f = gr.throttled or gr.long_pause
  local own = f and { scope = gr.subject.scope, source = f.source, reason = f.reason }
  if gr.throttled and not gr.suspected then feedback.decrease(gr, own) end
  if gr.long_pause then feedback.slow_start(gr, own) end
  if gr.refused and gr.fresh then
    gr.doc.epoch = as_text.us(math.max(gr.now, gr.subject.last_slot() or 0))
  end
  local pace = gr.doc.pace
  if not pace or pace.interval == before then return end
  gr.doc.by, gr.doc.reason, gr.doc.source, gr.doc.tier = gr.by, f.reason, f.source, gr.subject.tier
  gr.parts.g:set_pace(gr.subject, pace, gr.by, f.reason)
end

function group_feedback.concurrency(gr, f)
  if not f.limit and gr.adapt and gr.configured then return end
  if not f.limit then return group_feedback.pause(gr, f, gr.limits.maxSlowPauseMs) end
  if not gr.subject.crowds then return end
  local limit, ends = math.max(1, math.floor(f.limit)), gr.now_ms + math.ceil(f.ttlMs or gr.limits.slowMs)
  local function holds(s) return (s.concurrency or math.huge) <= limit end
  local entry = group_change(gr, f, 'crowded', limit, ends, holds)
  if entry then group_note(gr, f, { kind = 'concurrency', limit = entry.value, ['until'] = entry['until'] }) end
end

-- A used-up quota, or the remaining quota of a value.
function group_feedback.ok(gr, f)
  if not f.remaining then return end
  if f.remaining <= 0 and f.resetMs and f.resetMs > 0 then
    return group_feedback.pause(gr, { source = f.source, reason = f.reason, forMs = f.resetMs })
  end
  if gr.subject.lower then gr.subject.lower(f.remaining) end
end

function group_feedback.save(gr)
  if not gr.subject then return end
  if gr.parts.g then gr.parts.g:save() end
  gr.doc.last = nil
  local text = next(gr.doc) and cjson.encode(gr.doc) or false
  if text then redis.call('SET', gr.subject.doc, text, 'PX', queue_groups.PACE_MS)
  elseif gr.text then redis.call('DEL', gr.subject.doc) end
end

return group_feedback
