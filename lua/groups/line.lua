local estimate = use 'admission/estimate'
local next_departure = use 'admission/next-departure'
local queue_groups = use 'groups/queue-groups'
local group_schedule = use 'groups/schedule'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local job_options = use 'shape/job-options'

-- Estimates how many jobs start before a given one, and when its group would let it start, from the current tags;
-- assumes no arrivals and no change of holds. Exact where nothing holds a group and all costs are equal; a group that
-- waits for its turns and for its rate may start later than either says.
-- Jobs without a group are one group, named ''.
local group_line = {
  -- At most this many groups are read; their mean stands for the rest. The same for groups of new jobs.
  MOST = 100,
}

-- Adds these rows. With more than MOST, one stands for several neighbours by their tags: `n` of them.
function group_line.add_rows(rows, found)
  local every = math.max(1, math.ceil(#found / group_line.MOST))
  if every > 1 then table.sort(found, function(one, other) return one.tag < other.tag end) end
  for i = math.ceil(every / 2), #found, every do
    found[i].n = every
    rows[#rows + 1] = found[i]
  end
end

-- Returns a function of a group: its tag, and whether it is ready. A group that is not ready and keeps no tag would get
-- the next new one, so groups of new jobs are requested in that order.
function group_line.tags(g)
  local newest = math.max(g.v, g.t)
  return function(group)
    local ready = redis.call('ZSCORE', g:key('ready'), group)
    if ready then return tonumber(ready), true end
    local kept = tonumber(redis.call('ZSCORE', g:key('tags'), group) or nil)
    if kept and kept > g.v then return kept, false end
    newest = newest + 1
    return newest, false
  end
end

-- How many jobs wait once all new ones are stored.
function group_line.all(g, coming)
  local all = redis.call('LLEN', g.base .. 'wait') + redis.call('ZCARD', g.base .. 'prioritized')
  for _, jobs in pairs(coming.jobs) do all = all + jobs end
  return all
end

-- coming: groups in the order in which they would come, and by name the number of their jobs that are not stored yet
function group_line.open(g, shape, coming)
  local m = next_departure.meter(g.base, shape, g.now)
  local line = {
    g = g, mean = m and m.mean_cost or 1, rows = {}, by_group = {}, limits = group_schedule.of(g, shape),
    all = group_line.all(g, coming),
  }
  local function row(rows, group, tag, is_ready)
    if line.by_group[group] then return end
    local stored = (group_schedule.waiting(g, group))
    if g.lanes then stored = g:in_ready_lanes(group, stored) end
    local new = {
      group = group, tag = tag, is_ready = is_ready, n = 1, step = line.mean * g.UNIT / (g:settings(group).weight or 1),
      stored = stored, waiting = stored + (coming.jobs[group] or 0),
    }
    line.by_group[group], rows[#rows + 1] = new, new
  end
  local ready = redis.call('ZRANGE', g:key('ready'), 0, group_line.MOST - 1, 'WITHSCORES')
  for i = 1, #ready, 2 do row(line.rows, ready[i], tonumber(ready[i + 1])) end
  line.seen, line.last = #line.rows, line.rows[1] and line.rows[#line.rows].tag
  local found, tag_of = {}, group_line.tags(g)
  for _, group in ipairs(coming) do if group ~= '' then row(found, group, tag_of(group)) end end
  group_line.add_rows(line.rows, found)
  -- Its turn is noted with the first departure.
  row(line.rows, '', tag_of(''))
  return line
end

-- How many jobs of the rows from..to depart before one of the row `own` with this tag. Computed for each job of a bulk,
-- over all rows, so the loop calls no function.
function group_line.turns(line, from, to, own, tag)
  local rows, first, jobs = line.rows, line.g.defaults.ungrouped == 'first' and '', 0
  for i = from, to do
    local row = rows[i]
    local ahead, n, waiting = tag - row.tag, row.n, row.waiting
    if row == own then n = n - 1 end
    if row.group == first then
      jobs = jobs + waiting
    elseif ahead >= 0 and n > 0 then
      local steps = ahead / row.step
      if steps < waiting then
        local part = steps % 1
        -- With equal tags the first name departs first.
        waiting = steps - part + ((part > 0 or row.group < own.group) and 1 or 0)
      end
      jobs = jobs + n * waiting
    end
  end
  return jobs
end

-- How many jobs depart before the one that has `before` others of its group ahead of it. Second, how many of these are
-- counted: if not all groups are read, the others are assumed to be like them.
function group_line.ahead(line, group, before)
  if group == '' and line.g.defaults.ungrouped == 'first' then return before, before end
  local own = line.by_group[group]
  local tag = own.tag + before * own.step
  local seen = group_line.turns(line, 1, line.seen, own, tag)
  local others = seen + group_line.turns(line, line.seen + 1, #line.rows, own, tag)
  local counted = before + others
  if line.seen == group_line.MOST and tag > line.last then
    local known = 0
    for _, row in ipairs(line.rows) do if row.is_ready and row.tag <= tag then known = known + row.n end end
    local rest = redis.call('ZCOUNT', line.g:key('ready'), '(' .. as_text.us(line.last), '(' .. as_text.us(math.ceil(tag)))
    others = others + math.floor(math.max(0, rest - known) * seen / line.seen)
  end
  -- The mean of some groups may make more than there are.
  return math.max(0, math.min(before + others, line.all - 1)), counted
end

-- The first time, µs, at which a group itself lets a job with `before` others of it ahead depart; 0 if nothing holds
-- it, infinite if unknown. Second, the name of the limit per group that holds it longer than all else, nil if none
-- does. place: of a waiting job in its lane, nil in a queue without lanes
function group_line.own_start(line, group, before, cost, place)
  local g = line.g
  local s = group == '' and {} or g:settings_next(group)
  local from = math.max(s.paused or 0, s.limited or 0)
  if from == math.huge then return from end
  local start, b = from, g.enforced and g:bucket(group, s)
  if b then
    local since = meter.at(b, math.max(g.now, from))
    start = meter.time(b, bucket.nth_slot(b, before + 1, before == 0 and cost or line.mean, line.mean, since))
  end
  if not line.limits then return start end
  local limited, name = line.limits(group, (place and place.n or before) + 1, from, place)
  if limited > start then return limited, name end
  return start
end

-- Number of waiting jobs ahead of a new one of a group. stored: how many of the group wait
function group_line.present(g, group, priority, gone, stored)
  if stored == 0 then return 0 end
  if g.lanes then return g:before_new(group, stored) end
  local jobs, beyond = g.base .. 'meta:group:jobs:' .. group, '(' .. as_text.us((priority + 1) * g.BAND)
  if g.ageing then
    -- Among jobs of one priority, ageing changes nothing.
    local alike = group ~= '' and redis.call('ZCOUNT', jobs, as_text.us(priority * g.BAND), beyond)
    if alike == stored then return stored end
    return g.ageing.behind(g:line(group), g.now, priority) - (group == '' and gone or 0)
  end
  if group ~= '' then return redis.call('ZCOUNT', jobs, '-inf', beyond) end
  local listed = redis.call('LLEN', g.base .. 'wait') - gone
  if priority == 0 then return listed end
  return listed + redis.call('ZCOUNT', g.base .. 'prioritized', as_text.us(g.BAND), beyond)
end

-- The order of new jobs inside their groups: class, then key. Delayed ones come last.
local function rank(job)
  local terms = job.terms
  if terms.delay > 0 then return 3, terms.delay end
  if terms.place == 'l' then return 1, -job.at end
  return 2, job.group and job.group[2] or terms.priority
end

-- The new jobs of each group, and the groups in the order in which they would come.
local function coming_of(jobs)
  local lists, coming = {}, { jobs = {} }
  for i, job in ipairs(jobs) do
    job.at = i
    job.class, job.key = rank(job)
    local group = job.group and job.group[1] or ''
    if job.terms.place ~= 'w' then
      if not lists[group] then
        lists[group], coming[#coming + 1] = {}, group
      end
      table.insert(lists[group], job)
      coming.jobs[group] = #lists[group]
    end
  end
  return lists, coming
end

local function leaves_sooner(one, other)
  if one.class ~= other.class then return one.class < other.class end
  if one.key ~= other.key then return one.key < other.key end
  return one.at < other.at
end

-- Whether a group holds none of its jobs.
local function never_holds(g, shape, group)
  if g.enforced and shape.keyed_limits then return false end
  local s = group == '' and {} or g:settings(group)
  return not (s.paused or s.limited or (g.enforced and s.interval))
end

-- The position of a new job of a group in its lane, after new ones of the same call (alike: lane -> how many so far).
-- Nil if its options are unknown, or in a queue without lanes.
local function lane_place(g, group, priority, job, alike)
  if not (g.lanes and job.options) then return nil end
  local place = g:place_of_new(group, priority, job.options, job.class == 1)
  local same = alike[place.lane] or 0
  alike[place.lane], place.n = same + 1, place.n + same
  return place, same
end

-- As lateness.line, with groups: calls each(job, ahead, own), where own is the first time at which its group lets the
-- job go, as in group_line.own_start. It leaves out jobs that start in time behind all others (in_time).
function group_line.each_new(jobs, shape, gone, each, in_time)
  local g, line = jobs.groups, nil
  local lists, coming = coming_of(jobs)
  local all = group_line.all(g, coming)
  for _, group in ipairs(coming) do
    local list, is_sure = lists[group], never_holds(g, shape, group)
    for _, job in ipairs(list) do is_sure = is_sure and in_time(job, all) end
    if not is_sure then
      line = line or group_line.open(g, shape, coming)
      table.sort(list, leaves_sooner)
      local alike = {}
      for i, job in ipairs(list) do
        local priority = job.group and job.group[2] or job.terms.priority
        local place, same = lane_place(g, group, priority, job, alike)
        local before = place and place.before + (place.waits and same or i - 1) or i - 1
        if not place and job.class ~= 1 then
          before = before + group_line.present(g, group, priority, gone, line.by_group[group].stored)
        end
        -- As for a waiting job in such a lane: departures of others meanwhile are unknown.
        local ahead = place and place.waits and before or group_line.ahead(line, group, before)
        each(job, ahead, group_line.own_start(line, group, before, job.cost, place))
      end
    end
  end
end

-- How many waiting jobs of its group (nil: none) are ahead of a job; nil if it does not wait, or is not filed yet;
-- second, its place in its lane. looked_at: how many of the wait list are searched
function group_line.before(g, group, id, looked_at)
  if g.lanes then
    local place = g:place_in_lane(id)
    return place and place.before, place
  end
  local line = g:line(group or '')
  if g.ageing then return estimate.aged(g.ageing, line, id, looked_at) end
  local rank = redis.call('ZRANK', line.set, id)
  if group then return rank or nil end
  if not rank then return estimate.listed(line.list, id, looked_at) end
  return redis.call('LLEN', line.list) + rank - redis.call('ZCOUNT', line.set, '-inf', '(' .. as_text.us(g.BAND))
end

-- Position and start (µs) as text of a waiting job, '' if unknown. g: the opened groups, if there are any; looked_at: how many
-- jobs of the wait list are searched, 1 by default
function group_line.estimate(base, shape, now, id, g, looked_at)
  looked_at = looked_at or 1
  if not shape or not shape.groups then return estimate.start(base, shape, now, id, looked_at) end
  g = g or queue_groups.open(base, shape, now)
  local group = queue_groups.of_job(base, id)
  local before, place = group_line.before(g, group, id, looked_at)
  if not before then return '', '' end
  local line = group_line.open(g, shape, { group or '', jobs = {} })
  local ahead = place and place.waits and before or group_line.ahead(line, group or '', before)
  local own = group_line.own_start(line, group or '', before, group and (job_options.cost_of_job(base .. id)) or 1, place)
  local s = group and g:settings(group) or {}
  local full = g.enforced and s.concurrency
    and redis.call('SCARD', base .. 'meta:group:held:' .. group) >= s.concurrency
  local for_places = place and place.waits and place.waits.at == math.huge
  if own == math.huge or full or for_places or redis.call('HEXISTS', base .. 'meta', 'paused') == 1 then return ahead, '' end
  local start = estimate.start_at(base, shape, now, ahead)
  if start == '' and own <= now then return ahead, '' end
  return ahead, as_text.us(math.max(tonumber(start) or 0, own))
end

return group_line
