local changes = use 'feedback/changes'
local evidence = use 'feedback/evidence'
local feedback = use 'feedback/feedback'
local queue_groups = use 'groups/queue-groups'
local group_settings = use 'groups/settings'
local bucket = use 'meter/bucket'
local as_text = use 'redis/as-text'

-- Feedback about one group holds that group and no other. What a queue's feedback keeps in its shape is kept for each
-- group in meta:group:feedback:<group> (JSON: epoch, pauses, doubt, suspicion and well as in feedback/feedback and
-- feedback/evidence), until it has not been heard of for a while. With `adapt` its rate falls by the law of the queue's
-- (pace, and for the way back by, reason, source and held, until when it was paused last, ms: groups/pace). A group without a
-- rate pauses, and there is no probe: after a pause its jobs follow at its rate.
--   r.group        the group that the answer concerns, '' if the job has none; nil if it concerns the queue
--   r.group_calls  {oks, ok_at, ok_ago} of the group, as those of the request
local group_feedback = {}

-- Whether a finding concerns a group and not the queue.
function group_feedback.concerns(f)
  return f.scope == 'group' or (type(f.scope) == 'table' and f.scope.group ~= nil)
end

-- The request as one about a group: what is judged, and what is changed, is that of the group. Nil if no finding
-- concerns one. A job without a group, or in a queue without groups, is alone with what it heard.
function group_feedback.request(r, shape)
  local group
  for _, found in ipairs(r.found) do
    local f = found.feedback
    if group_feedback.concerns(f) then
      group = group or (f.scope == 'group' and r.group or f.scope.group) or ''
    end
  end
  if not group then return nil end
  local known = group ~= '' and shape.groups
  local calls = group == r.group and r.group_calls or { oks = 0 }
  local gr = setmetatable({
    group = known and group or nil, changes = {}, oks = calls.oks, ok_at = calls.ok_at or false,
    ok_ago = calls.ok_ago or false, configured = false,
  }, { __index = r })
  local text = known and redis.call('GET', r.base .. 'meta:group:feedback:' .. group)
  gr.doc = text and cjson.decode(text) or {}
  gr.epoch = tonumber(gr.doc.epoch) or false
  gr.fresh = feedback.fresh(gr)
  if known then
    gr.groups = queue_groups.open(r.base, shape, r.now)
    gr.configured = gr.groups:settings(group).configured or false
  end
  return gr
end

-- What went well for the group since its last report, which is made with a refusal.
function group_feedback.went_well(gr)
  evidence.went_well(gr)
  if gr.doc.pauses and gr.ok_at and (not gr.epoch or gr.ok_at * 1000 > gr.epoch) then
    gr.doc.pauses, gr.doc.suspicion = nil, nil
  end
end

-- What was found about no group is that of the job alone.
function group_feedback.judged(gr)
  if gr.group then return end
  gr.general, gr.suspected, gr.alone = false, false, math.max(gr.alone or 0, evidence.OWN)
end

local function group_note(gr, f, change)
  feedback.note(gr, { scope = { group = gr.group }, source = f.source, reason = f.reason }, change)
end

-- Whether what was set for the group holds it as much until a time. holds(s): whether these settings do
local function group_holds(gr, until_ms, holds)
  if not holds(gr.groups:settings(gr.group)) then return false end
  local entries = group_settings.stored(gr.groups, gr.group).fields
  for _, entry in pairs(entries) do
    local ends = entry['until']
    local sooner = ends and ends > gr.now_ms and ends < until_ms
    if sooner and not holds(gr.groups:settings_at(entries, ends * 1000)) then return false end
  end
  return true
end

-- Sets a hold, unless what is in force holds the group as much for as long. Returns the hold, which what was reported
-- before may have made stronger or longer; nil if nothing changed.
local function group_change(gr, f, field, value, until_ms, holds)
  if group_holds(gr, until_ms, holds) then return nil end
  return group_settings.change(gr.groups, gr.group, { [field] = value }, gr.by, f.reason, until_ms)[field]
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

-- The most that a group's rate is for a while: the slowest that was reported.
function group_feedback.cap(gr, f, rate, ttl_ms)
  local ends, slow = gr.now_ms + math.ceil(ttl_ms), bucket.interval(rate)
  local function holds(s) return (s.interval or 0) >= slow end
  local entry = group_change(gr, f, 'slowed', rate, ends, holds)
  if not entry then return end
  local text = changes.rate_text(bucket.interval(entry.value))
  group_note(gr, f, { kind = 'slow', rate = text, ['until'] = entry['until'] })
end

function group_feedback.slow(gr, f)
  local interval = gr.groups:settings(gr.group).interval
  if f.rate then
    group_feedback.cap(gr, f, { f.rate.limit, f.rate.period }, f.ttlMs or gr.limits.slowMs)
  elseif f.ttlMs and interval then
    local slower = math.max(interval, math.min(interval / f.factor, feedback.floor(gr)))
    if gr.fresh then group_feedback.cap(gr, f, { 1, slower / 1000 }, f.ttlMs) end
  elseif gr.suspected or not (gr.adapt and gr.configured) then
    group_feedback.pause(gr, f, gr.limits.maxSlowPauseMs)
  end
end

-- The rate of the group falls once per epoch, and starts slowly after a long pause: as that of the queue.
function group_feedback.adapt(gr)
  local before = gr.doc.pace and gr.doc.pace.interval
  local f = gr.throttled or gr.long_pause
  local own = f and { scope = { group = gr.group }, source = f.source, reason = f.reason }
  if gr.throttled and not gr.suspected then feedback.decrease(gr, own) end
  if gr.long_pause then feedback.slow_start(gr, own) end
  if gr.refused and gr.fresh then
    gr.doc.epoch = as_text.us(math.max(gr.now, gr.groups:last_slot(gr.group) or 0))
  end
  local pace = gr.doc.pace
  if not pace or pace.interval == before then return end
  gr.doc.by, gr.doc.reason, gr.doc.source = gr.by, f.reason, f.source
  gr.groups:set_pace(gr.group, pace, gr.by, f.reason)
end

function group_feedback.concurrency(gr, f)
  if not f.limit and gr.adapt and gr.configured then return end
  if not f.limit then return group_feedback.pause(gr, f, gr.limits.maxSlowPauseMs) end
  local limit, ends = math.max(1, math.floor(f.limit)), gr.now_ms + math.ceil(f.ttlMs or gr.limits.slowMs)
  local function holds(s) return (s.concurrency or math.huge) <= limit end
  local entry = group_change(gr, f, 'crowded', limit, ends, holds)
  if entry then group_note(gr, f, { kind = 'concurrency', limit = entry.value, ['until'] = entry['until'] }) end
end

-- A quota that is used up. Nothing else that went well changes a group.
function group_feedback.ok(gr, f)
  if not (f.remaining and f.remaining <= 0 and f.resetMs and f.resetMs > 0) then return end
  group_feedback.pause(gr, { source = f.source, reason = f.reason, forMs = f.resetMs })
end

function group_feedback.save(gr)
  if not gr.group then return end
  gr.groups:save()
  local key = gr.base .. 'meta:group:feedback:' .. gr.group
  if next(gr.doc) == nil then return redis.call('DEL', key) end
  gr.doc.last = nil
  redis.call('SET', key, cjson.encode(gr.doc), 'PX', gr.groups.PACE_MS)
end

return group_feedback
