-- Healthy: the newest revision is applied and, with spec.wait, Ready.
local function condition(name)
  if obj.status ~= nil and obj.status.conditions ~= nil then
    for _, c in ipairs(obj.status.conditions) do
      if c.type == name then
        return c
      end
    end
  end
  return nil
end

local ready = condition("Ready")
if ready == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "the fleet controller has not looked at this spec yet"}
end
if ready.reason == "Suspended" then
  return {status = "Suspended", message = ready.message}
end
if ready.status == "True" then
  local drifted = condition("Drifted")
  if drifted ~= nil and drifted.status == "True" then
    return {status = "Healthy", message = ready.message .. "; " .. drifted.message}
  end
  return {status = "Healthy", message = ready.message}
end
if ready.status == "Unknown" then
  return {status = "Progressing", message = ready.message}
end
return {status = "Degraded", message = ready.reason .. ": " .. ready.message}
