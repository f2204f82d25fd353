local group_line = use 'groups/line'

-- The new jobs of one call among the groups (groups/line), for those that have to start in time.

-- The new jobs of each group, and the groups in the order in which they would come.
local function group_line_coming(jobs)
  local lists, coming = {}, { jobs = {} }
  for i, job in ipairs(jobs) do
    job.at = i
    job.class, job.key = group_line.rank(job)
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

local function group_line_sooner(one, other)
  if one.class ~= other.class then return one.class < other.class end
  if one.key ~= other.key then return one.key < other.key end
  return one.at < other.at
end

-- Whether these jobs of a group start in time even if all others leave before them, and their group does not hold them.
local function group_line_is_sure(call, group, list, all)
  local g = call.g
  if g.enforced and call.shape.group_limits then return false end
  local s = group == '' and {} or g:settings(group)
  if s.paused or s.limited or (g.enforced and s.interval) then return false end
  for _, job in ipairs(list) do if not call.in_time(job, all) then return false end end
  return true
end

-- call: g, shape, and gone, each and in_time as in lateness.line
local function group_line_bulk(call, jobs)
  local g, line = call.g, nil
  local lists, coming = group_line_coming(jobs)
  local all = group_line.all(g, coming)
  for _, group in ipairs(coming) do
    local list = lists[group]
    if not group_line_is_sure(call, group, list, all) then
      line = line or group_line.open(g, call.shape, coming)
      table.sort(list, group_line_sooner)
      for i, job in ipairs(list) do
        local priority = job.group and job.group[2] or job.terms.priority
        local before = i - 1
        if job.class ~= 1 then
          before = before + group_line.present(g, group, priority, call.gone, line.by_group[group].stored)
        end
        call.each(job, group_line.ahead(line, group, before), group_line.own_start(line, group, before, job.cost))
      end
    end
  end
end

return group_line_bulk
